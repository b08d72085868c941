package sse_test

import (
	"testing"

	"github.com/flowapi/flowapi/internal/sse"
)

func TestAppendFrame(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, data, want string }{
		{"one line", `{"a":1}`, "before id: 7\nevent: flow.created\ndata: {\"a\":1}\n\n"},
		{"no data", ``, "before id: 7\nevent: flow.created\ndata: \n\n"},
		{"line breaks", "{\n\"a\":\r\n1}", "before id: 7\nevent: flow.created\ndata: { \"a\":  1}\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := []byte(tt.data)
			if got := string(sse.AppendFrame([]byte("before "), 7, "flow.created", data)); got != tt.want {
				t.Errorf("AppendFrame() = %q, want %q", got, tt.want)
			}
			if string(data) != tt.data {
				t.Error("AppendFrame changed its argument")
			}
		})
	}
}
