package app

import (
	"github.com/flowapi/flowapi/internal/domain/waitpoint"
	"github.com/flowapi/flowapi/internal/repo/store"
)

type tmpKeys struct{}

func (tmpKeys) Ring(q *store.Queries) (waitpoint.Ring, error) {
	return waitpoint.RingOf([]waitpoint.Key{{Kid: "k1", Secret: waitpoint.SecretOf(make([]byte, 32)), Current: true}}), nil
}

var keys tmpKeys
