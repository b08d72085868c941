package shape

import (
	"cmp"

	"github.com/flowapi/flowapi/internal/domain/run"
	"github.com/flowapi/flowapi/internal/handlers/oapi"
)

// Options returns what may be selected at a gate, each with what people call it.
func Options(in []run.Option) []oapi.GateOption {
	out := make([]oapi.GateOption, len(in))
	for i, o := range in {
		out[i] = oapi.GateOption{Value: o.Value, Label: cmp.Or(o.Label, o.Value)}
	}
	return out
}
