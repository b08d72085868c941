package app

import "github.com/flowapi/flowapi/internal/handlers/oapi"

type missing struct{ oapi.StrictServerInterface }
type wrapped struct{ missing }
