package store

import "strings"

// mostArguments bounds how many arguments one statement has.
const mostArguments = 1024

// Insert writes many rows with few statements: prefix is "INSERT INTO t (…) VALUES ", suffix what follows the values. It returns how
// many rows were written.
func (tx *Tx) Insert(prefix string, rows [][]any, suffix string) (int64, error) {
	var total int64
	for len(rows) > 0 {
		width, n := len(rows[0]), 1
		for n*2 <= len(rows) && n*2*width <= mostArguments { // powers of two, so that few statements exist
			n *= 2
		}
		args := make([]any, 0, n*width)
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		one := marks(width)
		written, err := tx.Exec(prefix+one+strings.Repeat(", "+one, n-1)+suffix, args...)
		if err != nil {
			return total, err
		}
		total += written
		rows = rows[n:]
	}
	return total, nil
}
