package store

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// session is one connection to SQLite with the statements that were prepared on it: preparing one costs more than running
// it. It is for one goroutine at a time.
type session struct {
	conn       *sqlx.Conn
	statements map[string]*sqlx.Stmt
}

// mostStatements is how many statements a connection keeps prepared; the hot ones are a few dozen.
const mostStatements = 300

func newSession(ctx context.Context, db *sqlx.DB) (*session, error) {
	conn, err := db.Connx(ctx)
	if err != nil {
		return nil, err
	}
	return &session{conn: conn, statements: map[string]*sqlx.Stmt{}}, nil
}

// exec runs a statement whatever becomes of the caller: an interrupted one would take the whole transaction with it.
func (s *session) exec(query string, args ...any) error {
	st, err := s.stmt(query)
	if err != nil {
		return err
	}
	_, err = st.ExecContext(context.Background(), args...)
	return err
}

func (s *session) prepare(_ context.Context, query string) (statement, error) { return s.stmt(query) }

func (s *session) stmt(query string) (*sqlx.Stmt, error) {
	if st, ok := s.statements[query]; ok {
		return st, nil
	}
	st, err := s.conn.PreparexContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	if len(s.statements) >= mostStatements { // lists have as many forms as callers like
		for text, old := range s.statements {
			_ = old.Close()
			delete(s.statements, text)
		}
	}
	s.statements[query] = st
	return st, nil
}
