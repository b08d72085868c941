package app_test
import ("testing";"time";"fmt"
	"github.com/flowapi/flowapi/internal/app"
	"github.com/flowapi/flowapi/internal/apptest"
	"github.com/flowapi/flowapi/internal/storetest"
)
func TestTmp(t *testing.T){
	storetest.Databases(t, func(t *testing.T, url string) {
		s := live{apptest.Start(t, url, func(cfg *app.Config) { cfg.Retention = app.Retention{EventAge: time.Hour, EventRows: 1_000_000} })}
  t0:=time.Now()
  p:=func(x string){ fmt.Println(s.App.Store().Database(), x, time.Since(t0)); t0=time.Now() }
  for range 5 { s.create("old") }
  s.page(t,"")
  p("created")
  b:=s.Stream("/v1/events/stream?after=4"); p("stream")
  f:=s.Stream("/v1/events/stream"); p("stream2")
  s.Advance(2*time.Hour); p("advance")
  s.create("new"); p("create")
  s.page(t,""); p("page")
  b.Next(); p("b1")
  b.Next(); p("b2")
  f.Next(); p("f1")
  for i:=range 4 { s.page(t, fmt.Sprint("?after=",i), "Prefer: wait=20"); p("poll");
  o:=s.Stream(fmt.Sprintf("/v1/events/stream?after=%d",i)); p("open"); o.Next(); p("o1") }
 })
}
