package postgres_test

import (
	"log/slog"
	"testing"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/postgres"
	"github.com/workwire/workwire/pkg/source/store/storetest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/postgreskit"
	"github.com/workwire/workwire/test/kit/storebench"
)

func TestStore(t *testing.T) {
	server := postgreskit.Start(t)
	storetest.Run(t, func(t *testing.T) storetest.Place { return &place{t: t, server: server, database: server.Database(t)} })
}

type place struct {
	t        testing.TB
	server   *postgreskit.Server
	database string
}

func (p *place) New() store.Store {
	return postgres.New(postgres.Config{URL: p.server.URL(p.database), Logger: kit.Logger(p.t)})
}

func (p *place) Copy(t testing.TB) {
	t.Helper()
	p.server.Exec(t, "CREATE DATABASE "+p.database+"copy TEMPLATE "+p.database)
}

func (p *place) Restore(t testing.TB) {
	t.Helper()
	p.server.Exec(t, "DROP DATABASE "+p.database)
	p.server.Exec(t, "CREATE DATABASE "+p.database+" TEMPLATE "+p.database+"copy")
}

func TestMeasured(t *testing.T) {
	server := postgreskit.Start(t)
	storebench.Test(t, (&place{t: t, server: server, database: server.Database(t)}).New())
}

// BenchmarkStore has a server that waits for the disk.
func BenchmarkStore(b *testing.B) {
	server := postgreskit.StartDurable(b)
	storebench.Benchmark(b, func(b *testing.B) store.Store {
		return postgres.New(postgres.Config{URL: server.URL(server.Database(b)), Logger: slog.New(slog.DiscardHandler)})
	})
}
