package app_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

func (x *executionTest) pageIsSecret() {
	id, w := x.asks("")
	_, other := x.asks("")
	before := x.traces(id)
	base, good := w.ApproveURL[:strings.LastIndex(w.ApproveURL, "/")+1], link(w.ApproveURL)
	parts := strings.Split(good, ".")
	flipped := strings.Map(func(r rune) rune { return map[bool]rune{true: 'a', false: '0'}[r == '0'] }, parts[2])
	var answers []approvalPage
	for _, bad := range []string{
		"nothing", "x.y.z", good + "x", good[:len(good)-1], strings.ToUpper(good), parts[0] + "." + parts[1] + "." + flipped, parts[0] + ".k9." + parts[2], uuid.NewString() + "." + parts[1] + "." + parts[2],
		strings.Split(link(other.ApproveURL), ".")[0] + "." + parts[1] + "." + parts[2], good + ".", "%2e", "%00", strings.Repeat("x", 5000), parts[0] + "%2E" + parts[1] + "." + parts[2],
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			p := x.visit(method, base+bad, map[bool]string{true: byAda}[method == http.MethodPost])
			x.sees(p, http.StatusForbidden, "This link is not valid")
			for _, name := range []string{"X-Request-Id", "Date"} {
				p.Header.Del(name)
			}
			answers = append(answers, p)
			document := x.visit(method, base+bad, `{"decision":"approved","name":"Ada"}`, "Accept: application/json", "Content-Type: application/json")
			var problem struct{ Code, Instance string }
			if json.Unmarshal([]byte(document.Body), &problem) != nil || problem.Code != "invalid_token" || problem.Instance != "/approve/…" || document.Header.Get("Content-Type") != "application/problem+json" {
				x.t.Errorf("%s %s = %s", method, bad, document.Body)
			}
		}
	}
	for _, p := range answers[1:] {
		if diff := cmp.Diff(answers[0], p); diff != "" {
			x.t.Fatalf("answers differ:\n%s", diff)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
	for _, path := range []string{"approve", "approve/", "approve/" + good + "/", "approve/" + good + "/x"} {
		if p := x.visit(http.MethodGet, strings.TrimSuffix(base, "approve/")+path, ""); p.Status != http.StatusNotFound || strings.Contains(p.Body, parts[2]) {
			x.t.Errorf("%s = %d %s", path, p.Status, p.Body)
		}
	}
}

func (x *executionTest) pageIsText() {
	quoted, _ := json.Marshal(evil)
	t := string(quoted)
	form := `"form":{"type":"object","title":` + t + `,"description":` + t + `,"properties":{` + t + `:{"type":"string","title":` + t + `,"description":` + t + `,"default":` + t + `},"z":{"type":"string","enum":[` + t + `]},"m":{"type":"string","x-multiline":true,"default":` + t + `}}}`
	e := x.create(`"kind":` + t)
	w := x.suspend(x.claim(lasting), approvalAt(`"title":`+t+`,"prompt":`+t+`,"requested_by":`+t+`,"payload":{`+t+`:[`+t+`,"\u202e"]},`+form)).Waitpoints[0]
	check := func(p approvalPage) {
		x.t.Helper()
		if strings.Contains(p.Body, "<script") || strings.Contains(p.Body, "<b>") || strings.Contains(p.Body, "\u202e") {
			x.t.Errorf("it is not text:\n%s", p.Body)
		}
	}
	check(x.opens(w.ApproveURL, evil, `"\u202e"`))
	check(x.visit(http.MethodPost, w.ApproveURL, formBody("decision", "approved", "name", "", "reason", evil, "form."+evil, evil, "form.z", evil+"?")))
	done := x.decides(w.ApproveURL, "decision", "rejected", "name", evil, "reason", evil, "form.z", evil)
	check(done)
	x.sees(done, http.StatusOK, "Rejected by "+evil+" (as they call themselves)")
	if got := x.said(e.ID); len(got) != 1 || got[0].Source != evil {
		x.t.Errorf("%+v", got)
	}
	_, w = x.asks("")
	x.signal(answerAs[oapi.ExecutionList](x.Get("/v1/executions?lane=" + x.lane + "&public_state=suspended").Want(http.StatusOK)).Items[0].ID, w,
		`"signal_name":"approved","source_type":`+t+`,"source_identity":`+t+`,"payload":{"reason":`+t+`}`).Want(http.StatusOK)
	check(x.opens(w.ApproveURL, "Approved by "+evil+" ("+evil+")"))
}

func (x *executionTest) pageHeaders() {
	_, w := x.asks("")
	answers := map[string]approvalPage{
		"shown":    x.opens(w.ApproveURL),
		"wrong":    x.visit(http.MethodPost, w.ApproveURL, "decision=approved"),
		"not ours": x.visit(http.MethodGet, w.ApproveURL+"0", ""),
		"done":     x.visit(http.MethodPost, w.ApproveURL, byAda),
		"decided":  x.opens(w.ApproveURL),
		"document": x.visit(http.MethodPost, w.ApproveURL, `{}`, "Content-Type: application/json", "Accept: application/json"),
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for name, p := range answers {
		for header, want := range map[string]string{"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex, nofollow"} {
			if got := p.Header.Get(header); got != want {
				x.t.Errorf("%s: %s = %q", name, header, got)
			}
		}
		policy := p.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none';", "form-action 'self';", "base-uri 'none';", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				x.t.Errorf("%s: %s", name, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(p.Body, "style=") || strings.Contains(p.Body, "<script") || strings.Contains(p.Body, "http") {
			x.t.Errorf("%s: %s\n%s", name, policy, p.Body)
		}
		if name == "done" || name == "document" {
			continue
		}
		found := style.FindAllStringSubmatch(p.Body, -1)
		if len(found) != 1 {
			x.t.Fatalf("%s has %d styles", name, len(found))
		}
		if sum := sha256.Sum256([]byte(found[0][1])); !strings.Contains(policy, "style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			x.t.Errorf("%s: the policy %s does not allow its style", name, policy)
		}
		if !strings.HasPrefix(p.Body, "<!doctype html>\n<html lang=\"en\">") || p.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			x.t.Errorf("%s: %s %.80s", name, p.Header.Get("Content-Type"), p.Body)
		}
	}
}

func (x *executionTest) pageForPrograms() {
	id, w := x.asks(someForm)
	post := func(body string, headers ...string) approvalPage {
		x.t.Helper()
		return x.visit(http.MethodPost, w.ApproveURL, body, append([]string{"Content-Type: application/json", "Accept: */*"}, headers...)...)
	}
	before := x.traces(id)
	for body, want := range map[string]string{
		`{"decision":"maybe","name":"Ada"}`: "/decision", `{"decision":"approved"}`: "/name", `null`: "/decision", `{"decision":"approved","name":"Ada"}`: "/form/zone", `{"decision":"approved","name":"Ada","form":{"zone":"a","sure":1}}`: "/form/sure",
		`{"decision":"approved","name":"Ada","form":{"zone":"a","sure":true,"x":1}}`: "/form/x", `{"decision":"approved","name":"Ada","form":[]}`: "/form", `{"decision":1}`: "", `[]`: "", `{"decision":"approved","name":"Ada","token":"x"}`: "",
	} {
		p := post(body)
		var problem struct {
			Code   string
			Errors []fault.Field
		}
		if json.Unmarshal([]byte(p.Body), &problem) != nil || p.Status != http.StatusUnprocessableEntity || problem.Code != "validation_failed" || len(problem.Errors) == 0 || problem.Errors[0].Pointer != want {
			x.t.Errorf("%s = %d %s, want %s", body, p.Status, p.Body, want)
		}
	}
	for _, body := range []string{`{`, `{"decision":"approved"} {}`, "decision=approved", ""} {
		if p := post(body); p.Status != http.StatusBadRequest || !strings.Contains(p.Body, "malformed_json") {
			x.t.Errorf("%q = %d %s", body, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	_, bare := x.asks("")
	for body, pointer := range map[string]string{`{"decision":"approved","name":"Ada","form":{"x":1}}`: "/form", `{"decision":"approved","name":"\u200b "}`: "/name", `{"decision":"approved","name":"a\u0000"}`: "/name"} {
		if p := x.visit(http.MethodPost, bare.ApproveURL, body, "Content-Type: application/json", "Accept: */*"); p.Status != http.StatusUnprocessableEntity || !strings.Contains(p.Body, `"pointer":"`+pointer+`"`) {
			x.t.Errorf("%s = %d %s", body, p.Status, p.Body)
		}
	}
	const good = `{"decision":"approved","name":"Ada","reason":"r","form":{"zone":"b","sure":true}}`
	first, second := answerOf[oapi.SignalReceipt](x, post(good)), answerOf[oapi.SignalReceipt](x, post(good, "Accept: application/json"))
	if first.Outcome != "accepted" || first.Effect != "resume_condition_satisfied" || second.Outcome != "duplicate" || second.SignalID != first.SignalID {
		x.t.Errorf("%+v, %+v", first, second)
	}
	if got := x.said(id); len(got) != 1 || got[0].Payload != `{"decision":"approved","by":"Ada","reason":"r","form":{"zone":"b","sure":true}}` {
		x.t.Errorf("%+v", got)
	}
	if p := post(`{"decision":"rejected","name":"Ada"}`); p.Status != http.StatusConflict || !strings.Contains(p.Body, "waitpoint_closed") {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
	_, w = x.asks(twoPeople)
	if p := post(`{"decision":"approved"}`, "Authorization: Bearer nobody"); p.Status != http.StatusUnauthorized || !strings.Contains(p.Body, "unauthenticated") {
		x.t.Errorf("%d %s", p.Status, p.Body)
	}
	if got := answerOf[oapi.SignalReceipt](x, post(`{"decision":"approved"}`, "Authorization: Bearer "+x.token("kim", "operator", "default"))); got.Effect != "appended_to_waitpoint" {
		x.t.Errorf("%+v", got)
	}
}

// answerOf returns a JSON answer of the page.
func answerOf[T any](x *executionTest, p approvalPage) (v T) {
	x.t.Helper()
	if err := json.Unmarshal([]byte(p.Body), &v); err != nil || p.Status != http.StatusOK || p.Header.Get("Content-Type") != "application/json" {
		x.t.Fatalf("%d %s: %v", p.Status, p.Body, err)
	}
	return v
}

func (x *executionTest) pageRefuses() {
	id, w := x.asks("")
	before := x.traces(id)
	for _, tt := range []struct {
		body, kind string
		status     int
		code       string
	}{
		{byAda + "&reason=" + strings.Repeat("x", 256<<10), "application/x-www-form-urlencoded", http.StatusRequestEntityTooLarge, "payload_too_large"},
		{byAda + "&reason=" + strings.Repeat("x", 16385), "application/x-www-form-urlencoded", http.StatusUnprocessableEntity, "validation_failed"},
		{"%zz", "application/x-www-form-urlencoded", http.StatusBadRequest, "invalid_parameter"},
		{"x", "multipart/form-data; boundary=x", http.StatusUnsupportedMediaType, "unsupported_media_type"},
		{byAda, "text/plain", http.StatusUnsupportedMediaType, "unsupported_media_type"},
		{"", "application/x-www-form-urlencoded", http.StatusUnprocessableEntity, "validation_failed"},
	} {
		if p := x.visit(http.MethodPost, w.ApproveURL, tt.body, "Content-Type: "+tt.kind); p.Status != tt.status || !strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			x.t.Errorf("%.40s = %d %s %s", tt.body, p.Status, p.Header, p.Body)
		}
		if p := x.visit(http.MethodPost, w.ApproveURL, tt.body, "Content-Type: "+tt.kind, "Accept: application/json"); p.Status != tt.status || !strings.Contains(p.Body, `"code":"`+tt.code+`"`) {
			x.t.Errorf("%.40s = %d %s", tt.body, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Errorf("(-before +after):\n%s", diff)
	}
}

func (x *executionTest) pageOrigins() {
	id, w := x.asks("")
	here, err := url.Parse(w.ApproveURL)
	if err != nil {
		x.t.Fatal(err)
	}
	before := x.traces(id)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site"}, {"Sec-Fetch-Site: same-site"}, {"Sec-Fetch-Site: cross-site", "Origin: null"}, {"Origin: https://evil.example"}, {"Origin: http://evil.example", "Sec-Fetch-Site: "},
		{"Host: evil.example"}, // a name that was rebound to an anonymous server
	} {
		if p := x.visit(http.MethodPost, w.ApproveURL, byAda, headers...); p.Status != http.StatusForbidden || !strings.Contains(p.Body, "cross_origin") {
			x.t.Errorf("%v = %d %s", headers, p.Status, p.Body)
		}
	}
	if diff := cmp.Diff(before, x.traces(id)); diff != "" {
		x.t.Fatalf("(-before +after):\n%s", diff)
	}
	if p := x.visit(http.MethodPost, strings.Replace(w.ApproveURL, "/approve/"+link(w.ApproveURL), "/v1/flows", 1), `{"goal":"x"}`, "Origin: null"); p.Status != http.StatusForbidden {
		x.t.Errorf("an unnamed origin may call the API: %d %s", p.Status, p.Body)
	}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: same-origin", "Origin: null"}, // of a page that sends no referrer, over TLS or on this machine
		{"Origin: null"},                // of the same, over plain HTTP
		{"Origin: http://" + here.Host}, // of a browser that says it all the same
		{"Sec-Fetch-Site: none"},        // typed by hand
		{},                              // curl
	} {
		_, w := x.asks("")
		x.sees(x.visit(http.MethodPost, w.ApproveURL, byAda, headers...), http.StatusSeeOther)
	}
}
