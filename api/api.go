// Package api holds the contract as it is written.
package api

import _ "embed"

// Document is the contract, in YAML.
//
//go:embed openapi.yaml
var Document []byte
