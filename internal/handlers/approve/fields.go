package approve

import (
	"math"
	"net/url"
	"slices"
	"strconv"

	"github.com/flowapi/flowapi/internal/form"
)

// formView is the form to decide with.
type formView struct {
	Title, Description string
	Fields             []fieldView
	Options            []optionView
	Name, Reason       string
	Token              bool // an access token is asked for, instead of a name
	TokenOptional      bool
	NameError          string
	ReasonError        string
	TokenError         string
	OptionsError       string
	Focus              string // the first field that is wrong
}

// fieldView is a field of the form as HTML has it.
type fieldView struct {
	form.Field
	ID, Input, Value, Error string
	Min, Max                string
	Checked                 bool
	Focus                   bool
}

// optionView is an option as HTML has it.
type optionView struct {
	option
	ID      string
	Checked bool
	Focus   bool
}

// problemView is a line of the summary of what is wrong.
type problemView struct{ ID, Label, Detail string }

// inputs are the types of input elements by the kinds of fields.
var inputs = map[form.Kind]string{form.Text: "text", form.Email: "email", form.URI: "url", form.Date: "date", form.Integer: "number", form.Number: "number"}

// formOf returns the form with what was filled in before, except a token.
func (v *visit) formOf(in *input, bad *wrong) *formView {
	f := &formView{Title: v.Asked.Title, Description: v.Asked.Description, Name: in.Name, Reason: in.Reason, Token: v.Identified,
		NameError: bad.of("name"), ReasonError: bad.of("reason"), TokenError: bad.of("token"), OptionsError: bad.of("selections")}
	if f.Token {
		_, err := v.identify("")
		f.TokenOptional = err == nil
	}
	if !bad.none() {
		f.Focus = bad.parts[0].field
	}
	for i := range v.Asked.Fields {
		f.Fields = append(f.Fields, fieldOf(i, v.Asked.Fields[i], in.values, bad))
	}
	for i, o := range v.Options {
		f.Options = append(f.Options, optionView{o, optionID(i), slices.Contains(in.Selections, o.Value), i == 0 && f.Focus == "selections"})
	}
	return f
}

func fieldID(i int) string  { return "field-" + strconv.Itoa(i) }
func optionID(i int) string { return "option-" + strconv.Itoa(i) }

func fieldOf(i int, of form.Field, filled url.Values, bad *wrong) fieldView {
	name := fieldPrefix + of.Name
	f := fieldView{Field: of, ID: fieldID(i), Input: inputs[of.Kind], Value: of.Default, Error: bad.of(name)}
	if filled != nil {
		f.Value = filled.Get(of.Name)
	}
	f.Checked = f.Value == "true"
	f.Focus = !bad.none() && bad.parts[0].field == name
	bound := func(n *float64, round func(float64) float64) string {
		if n == nil {
			return ""
		}
		to := *n
		if of.Kind == form.Integer {
			to = round(to)
		}
		return strconv.FormatFloat(to, 'f', -1, 64)
	}
	f.Min, f.Max = bound(of.Minimum, math.Ceil), bound(of.Maximum, math.Floor)
	return f
}

// problem returns a line of the summary, with where the field is.
func (v *visit) problem(p part) problemView {
	out := problemView{ID: p.field, Detail: p.detail}
	switch p.field {
	case "name":
		out.Label = "Your name"
	case "token":
		out.Label = "Access token"
	case "reason":
		out.Label = "Reason"
	case "decision":
		out.ID = "approve"
	case "selections":
		out.ID, out.Label = "", "Selection"
		if len(v.Options) > 0 {
			out.ID = optionID(0)
		}
	}
	for i := range v.Asked.Fields {
		if f := &v.Asked.Fields[i]; fieldPrefix+f.Name == p.field {
			out.ID, out.Label = fieldID(i), f.Label()
		}
	}
	return out
}
