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
		s.forget()
	}
	s.statements[query] = st
	return st, nil
}

// forget closes the statements.
func (s *session) forget() {
	for _, st := range s.statements {
		_ = st.Close()
	}
	clear(s.statements)
}

// close gives the connection back. SQLite keeps one open that has statements, and database/sql does not close those of a [sql.Conn].
func (s *session) close() {
	s.forget()
	_ = s.conn.Close()
}
