package store

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// The column types. Each has one spelling on both databases, and the zero value is NULL.

// ID is a UUID: 16 bytes in SQLite, uuid in PostgreSQL.
type ID uuid.UUID

// Value implements driver.Valuer.
func (id ID) Value() (driver.Value, error) {
	if uuid.UUID(id) == uuid.Nil {
		return nil, nil
	}
	return id[:], nil
}

// Scan implements sql.Scanner.
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*id = ID{}
		return nil
	case []byte:
		if len(v) == 16 {
			copy(id[:], v)
			return nil
		}
		return (*uuid.UUID)(id).UnmarshalText(v)
	case string:
		return (*uuid.UUID)(id).UnmarshalText([]byte(v))
	default:
		return fmt.Errorf("scan %T into an id", src)
	}
}

// Millis is an instant, stored as Unix milliseconds.
type Millis time.Time

// Value implements driver.Valuer.
func (m Millis) Value() (driver.Value, error) {
	if time.Time(m).IsZero() {
		return nil, nil
	}
	return time.Time(m).UnixMilli(), nil
}

// Scan implements sql.Scanner.
func (m *Millis) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*m = Millis{}
		return nil
	case int64:
		*m = Millis(time.UnixMilli(v).UTC())
		return nil
	default:
		return fmt.Errorf("scan %T into an instant", src)
	}
}

// JSON is a document, stored as text.
type JSON []byte

// Value implements driver.Valuer.
func (j JSON) Value() (driver.Value, error) {
	if j == nil {
		return nil, nil
	}
	return string(j), nil
}

// Scan implements sql.Scanner.
func (j *JSON) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*j = nil
	case string:
		*j = JSON(v)
	case []byte:
		*j = append(JSON{}, v...)
	default:
		return fmt.Errorf("scan %T into a document", src)
	}
	return nil
}

// Text is a string whose empty value is NULL.
type Text string

// Value implements driver.Valuer.
func (t Text) Value() (driver.Value, error) {
	if t == "" {
		return nil, nil
	}
	return string(t), nil
}

// Scan implements sql.Scanner.
func (t *Text) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = ""
	case string:
		*t = Text(v)
	case []byte:
		*t = Text(v)
	default:
		return fmt.Errorf("scan %T into a text", src)
	}
	return nil
}
