package store

import "slices"

// fitBytes is how much of what is large about its rows a page has.
const fitBytes = 1 << 20

// Fit returns how many of the first limit rows of a query make a page: as many as have a mebibyte of column together, and one at
// least. from is the query after its FROM, without a LIMIT.
func Fit(q *Queries, limit int, column, from string, args ...any) (int, error) {
	var sizes []int
	if err := q.Select(&sizes, `SELECT coalesce(octet_length(`+column+`), 0) FROM `+from+` LIMIT ?`, append(slices.Clip(args), limit)...); err != nil {
		return 0, err
	}
	total := 0
	for i, size := range sizes {
		if total += size; total > fitBytes && i > 0 {
			return i, nil
		}
	}
	return limit, nil
}
