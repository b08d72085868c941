package approve

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the template and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"

	"github.com/flowapi/flowapi/internal/domain/fault"
	"github.com/flowapi/flowapi/internal/handlers/answer"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pageStyle is the style as the template may use it: not a word of it comes from outside.
var pageStyle = template.CSS(pageCSS) //nolint:gosec // see above

var pages = template.Must(template.New("pages").Parse(pageHTML))

// policy lets the page have its own style and send its own form, and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// head sets what every answer here has: the path is a secret, and nothing that is shown may run or be framed.
func head(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex, nofollow")
}

// view is what the page shows.
type view struct {
	*question
	Style   template.CSS
	Status  string // in a sentence
	Details string // the payload
	Form    *formView
	Errors  []problemView
}

// render shows the page.
func (v *visit) render(w http.ResponseWriter, status int, in *input, bad *wrong) error {
	page := view{question: v.question, Style: pageStyle, Details: pretty(v.Payload)}
	switch {
	case !v.Open():
		page.Status = v.Ending.Text
	case v.Need > 1:
		page.Status = fmt.Sprintf("%d of %d approvals", v.Have, v.Need)
	default:
		page.Status = "Waiting for a decision"
	}
	if v.Open() {
		page.Form = v.formOf(in, bad)
	}
	if bad != nil {
		for _, p := range bad.parts {
			page.Errors = append(page.Errors, v.problem(p))
		}
	}
	return write(w, status, "page", &page)
}

// write sends a page, once it is complete.
func write(w http.ResponseWriter, status int, name string, data any) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("render the page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that is gone does not read it
	return nil
}

// Refuse shows what went wrong. A link that opens nothing gets the same page whatever is wrong with it.
func (p *Page) Refuse(w http.ResponseWriter, problem answer.Problem) {
	data := struct {
		Style             template.CSS
		Title, Detail, ID string
	}{pageStyle, problem.Title, problem.Detail, problem.RequestID}
	if problem.Code == fault.CodeInvalidToken {
		data.Title, data.ID = "This link is not valid", ""
		data.Detail = "It may be incomplete, or it was replaced or has expired. Open it exactly as you got it, or ask whoever sent it for another one."
	}
	if problem.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	_ = write(w, problem.Status, "refused", data) // of texts: it cannot fail
}
