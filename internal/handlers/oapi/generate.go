// Package oapi is the Go side of the contract: types, routing and the strict server interface, generated from
// api/openapi.yaml. Change the contract and run `go generate`; what is generated is not edited by hand.
package oapi

import (
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:generate go tool oapi-codegen -config cfg.yaml ../../../api/openapi.yaml

// Spec returns the contract, in which descriptions also name the codes. It is read once, for all who share it: nobody changes it.
var Spec = sync.OnceValues(func() (*openapi3.T, error) {
	spec, err := GetSpec()
	if err == nil {
		describeCodes(spec)
	}
	return spec, err
})
