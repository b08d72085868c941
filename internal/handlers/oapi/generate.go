// Package oapi is the Go side of the contract: types, routing and the strict server interface, generated from
// api/openapi.yaml. Change the contract and run `go generate`; nothing here is edited by hand.
package oapi

import "sync"

//go:generate go tool oapi-codegen -config cfg.yaml ../../../api/openapi.yaml

// Spec returns the contract. It is read once, for all who share it: nobody changes it.
var Spec = sync.OnceValues(GetSpec)
