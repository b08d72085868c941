package answer

import (
	"net/http"
	"strings"
)

// ForProgram says whether a request to a page comes from a program that wants JSON, and not from a browser: it accepts or sends JSON,
// and does not name HTML.
func ForProgram(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return !strings.Contains(accept, "text/html") && (strings.Contains(accept, "json") || strings.Contains(strings.ToLower(r.Header.Get("Content-Type")), "json"))
}
