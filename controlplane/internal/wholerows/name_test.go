package wholerows_test // with pgx in the package itself, pgx would be first

import (
	"database/sql"
	"slices"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that must not have the name

	"github.com/workwire/workwire/controlplane/internal/wholerows"
)

func TestTheNameIsTakenFirst(t *testing.T) {
	if err := wholerows.Check(); err != nil {
		t.Error(err)
	}
	if names := sql.Drivers(); !slices.Contains(names, "pgx/v5") {
		t.Errorf("pgx is not among %v", names)
	}
}
