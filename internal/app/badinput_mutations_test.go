package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// mutation puts a value where it may not stand.
type mutation struct {
	path  []string
	name  string
	value any
}

// absent stands for a member that is taken away.
type absent struct{}

// mutations returns what a schema forbids, member by member.
func mutations(s *openapi3.Schema, at []string, depth int) []mutation {
	var all []mutation
	add := func(path []string, name string, value any) {
		all = append(all, mutation{slices.Clone(path), name, value})
	}
	if s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has {
		add(append(at, "bogus"), "that is not known", 1)
	}
	for _, name := range s.Required {
		add(append(at, name), "that is missing", absent{})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		member, path := s.Properties[name].Value, append(slices.Clone(at), name)
		for what, value := range forbidden(member) {
			add(path, what, value)
		}
		if depth < 4 && member.Type.Is(openapi3.TypeObject) {
			all = append(all, mutations(member, path, depth+1)...)
		}
		if depth < 4 && member.Type.Is(openapi3.TypeArray) {
			item := append(slices.Clone(path), "0")
			for what, value := range forbidden(member.Items.Value) {
				add(item, what, value)
			}
			all = append(all, mutations(member.Items.Value, item, depth+1)...)
		}
	}
	return all
}

// forbidden returns values that a schema does not allow, by what is wrong with them.
func forbidden(s *openapi3.Schema) map[string]any {
	bad := map[string]any{}
	if len(s.Type.Slice()) > 0 && !s.Nullable {
		bad["that is null"] = nil
	}
	switch {
	case s.Type.Is(openapi3.TypeString):
		bad["that is no string"] = 7
		switch {
		case s.Format == "uuid":
			bad["that is a UUID in another spelling"] = "{01985c3e-7a10-7c3e-9b52-3f1d8e6a4b01}"
		case s.Format == "date-time":
			bad["that is no time"] = "tomorrow"
			bad["that is a time without its zone"] = "2026-11-22T09:30:00"
		case len(s.Enum) > 0:
			bad["of no such value"] = "bogus"
		}
		if s.MaxLength != nil && s.Format == "" {
			bad["that is too long"] = strings.Repeat("x", int(*s.MaxLength)+1)
		}
		if s.MinLength > 0 {
			bad["that is empty"] = ""
		}
	case s.Type.Is(openapi3.TypeInteger), s.Type.Is(openapi3.TypeNumber):
		bad["that is no number"] = "x"
		if s.Type.Is(openapi3.TypeInteger) {
			bad["that is not whole"] = 1.5
			bad["beyond all integers"] = json.RawMessage("1e30")
		}
		if s.Min != nil {
			bad["below its minimum"] = *s.Min - 1
		}
		if s.Max != nil {
			bad["above its maximum"] = *s.Max + 1
		}
		if s.Format == "int32" {
			bad["beyond 32 bits"] = int64(1) << 31
		}
	case s.Type.Is(openapi3.TypeBoolean):
		bad["that is no boolean"] = "yes"
	case s.Type.Is(openapi3.TypeArray):
		bad["that is no list"] = map[string]any{}
		if s.MaxItems != nil {
			bad["with too many items"] = slices.Repeat([]any{"x"}, int(*s.MaxItems)+1)
		}
		if s.MinItems > 0 {
			bad["without items"] = []any{}
		}
	case s.Type.Is(openapi3.TypeObject):
		bad["that is no object"] = []any{}
		if s.MaxProps != nil {
			many := map[string]any{}
			for i := range int(*s.MaxProps) + 1 {
				many[fmt.Sprint("a.k", i)] = "x"
			}
			bad["with too many members"] = many
		}
	}
	return bad
}

// replaced returns a copy of a document with another value at a path. It makes the objects and lists on the way there, unless
// the path is to be taken away.
func replaced(document any, path []string, value any) (any, bool) {
	if len(path) == 0 {
		return value, true
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := document.([]any)
		list = slices.Clone(list)
		if len(list) <= i {
			list = append(list, nil)
		}
		inner, ok := replaced(list[i], path[1:], value)
		list[i] = inner
		return list, ok
	}
	object, _ := document.(map[string]any)
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	if _, gone := value.(absent); gone && len(path) == 1 {
		delete(object, path[0])
		return object, true
	}
	inner, ok := replaced(object[path[0]], path[1:], value)
	object[path[0]] = inner
	return object, ok
}
