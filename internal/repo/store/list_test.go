package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flowapi/flowapi/internal/repo/store"
	"github.com/flowapi/flowapi/internal/storetest"
)

func TestList(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	storetest.Stores(t, func(t *testing.T, s *store.Store) {
		for _, name := range names {
			if err := store.Do(t.Context(), s, func(tx *store.Tx) error { return put(tx, name) }); err != nil {
				t.Fatal(err)
			}
		}
		for n := range len(names) + 1 {
			t.Run(fmt.Sprintf("%d of them", n), func(t *testing.T) {
				var got, rest []string
				err := s.Read(t.Context(), func(q *store.Queries) error {
					if err := q.Select(&got, `SELECT name FROM tokens WHERE role = ? AND name IN ? AND namespace = ? ORDER BY name`, "viewer", store.List(names[:n]), "default"); err != nil {
						return err
					}
					where := store.NewWhere("role = ?", "viewer")
					where.If(n > 0, "NOT name IN ?", store.List(names[:n]))
					return q.Select(&rest, `SELECT name FROM tokens WHERE `+where.String()+` ORDER BY name LIMIT ?`, where.Args(10)...)
				})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, names[:n]) || !slices.Equal(rest, names[n:]) {
					t.Errorf("%v and %v", got, rest)
				}
			})
		}
	})
}
