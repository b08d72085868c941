// Package docspage is the API reference at /docs: Swagger UI, which reads /openapi.json of the server that it came from. Its
// files are embedded, so that it works without a network; scripts/vendor-docs.sh brings them from npm.
package docspage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"
)

//go:embed page
var embedded embed.FS

// policy lets the page load and call this server and nothing else. Nothing in it is inline; the images are in its style sheet.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one of the page's files with its entity tag.
type file struct {
	name    string
	content []byte
	etag    string
}

// Handler serves the page at /docs and its files below. An unknown name leads to the page: problem documents are not made here.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := load()[strings.TrimSuffix(r.URL.Path, "/")]
		if !ok {
			http.Redirect(w, r, "/docs", http.StatusFound)
			return
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache") // the next binary may bring another page: ask, and be told 304
		header.Set("ETag", f.etag)
		http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(f.content))
	})
}

// load returns the files by the paths that they are served at, which are read when the first is asked for. It panics if the binary
// was built without them.
var load = sync.OnceValue(func() map[string]file {
	files := make(map[string]file)
	err := fs.WalkDir(embedded, "page", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		url := "/docs" + strings.TrimPrefix(path, "page")
		files[url] = file{name: entry.Name(), content: content, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
		return nil
	})
	if err != nil {
		panic(err)
	}
	files["/docs"] = files["/docs/index.html"]
	return files
})
