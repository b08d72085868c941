// Package oapi is the Go side of the contract: types, routing and the strict server interface, generated from
// api/openapi.yaml. Change the contract and run `go generate`; nothing here is edited by hand.
package oapi

//go:generate go tool oapi-codegen -config cfg.yaml ../../../api/openapi.yaml
