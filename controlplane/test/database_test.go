package test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // a driver that does not read whole results
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/controlplane/internal/wholerows"
)

// TestDatabaseCrash kills PostgreSQL while a client writes. The control plane goes on when it is back,
// what was acknowledged is there, and watches have seen all of it.
func TestDatabaseCrash(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := ownPostgres(t)
	dir := t.TempDir()
	p := up(t, "--role=hub", "--dir="+dir, server.endpointFile(t, server.createDatabase(t)))
	children := p.children()
	client := p.client().CoreV1()
	seen, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.RESTClient(), "configmaps", "default", fields.Everything()),
		ObjectType:    &corev1.ConfigMap{}, Handler: cache.ResourceEventHandlerFuncs{},
	})
	go informer.Run(ctx.Done())

	var acknowledged []string
	attempts := 0
	write := func() error {
		attempts++
		name := fmt.Sprintf("object-%d", attempts)
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_, err := client.ConfigMaps("default").Create(limited, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			acknowledged = append(acknowledged, name)
		}
		return err
	}
	for range 50 {
		noError(t, write())
	}
	server.kill(t)
	if err := write(); err == nil {
		t.Error("a write without a database was acknowledged")
	}
	noError(t, server.start())
	eventually(t, "writes go on", write)
	for range 50 {
		eventually(t, "a write", write)
	}
	p.noSecret(dir)
	list, err := client.ConfigMaps("default").List(ctx, metav1.ListOptions{})
	noError(t, err)
	found := map[string]bool{}
	for _, object := range list.Items {
		found[object.Name] = true
	}
	for _, name := range acknowledged {
		if !found[name] {
			t.Errorf("%s is lost", name)
		}
	}
	eventually(t, "the watch has seen all", func() error {
		if n := len(seen.ListKeys()); n != len(list.Items) {
			return fmt.Errorf("%d of %d objects", n, len(list.Items))
		}
		return nil
	})
	for pid, name := range p.children() {
		if children[pid] != name {
			t.Errorf("%s was started again", name)
		}
	}
	p.stop()
}

// bump is the statement of docs/operations.md.
const bump = `
INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease)
  SELECT max(id) + 1000000000, 'gap-restored', 0, 1, 0, 0, 0 FROM kine;
UPDATE kine SET prev_revision = (SELECT max(id) FROM kine) - 1 WHERE name = 'compact_rev_key';
SELECT setval('kine_id_seq', (SELECT max(id) FROM kine));`

// TestDatabaseRestored restores a dump of PostgreSQL as docs/operations.md says, after refusals.
func TestDatabaseRestored(t *testing.T) {
	t.Parallel()
	server := sharedPostgres(t)
	database := server.createDatabase(t)
	dir, endpoint := t.TempDir(), server.endpointFile(t, database)
	p := up(t, "--role=hub", "--dir="+dir, endpoint)
	maps := p.client().CoreV1().ConfigMaps("default")
	create := func(name string) string {
		t.Helper()
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		noError(t, err)
		return made.ResourceVersion
	}
	for _, args := range [][]string{{"snapshot", "--output=" + filepath.Join(t.TempDir(), "db")}, {"restore", "--snapshot=x"}} {
		out, err := exec.Command(binary, append(args, "--dir="+dir)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "pg_dump") || !strings.Contains(string(out), "docs/operations.md") {
			t.Errorf("%s: %v: %s", args, err, out)
		}
	}
	create("before")
	dump, err := server.command("pg_dump", "--format=custom", database).Output()
	noError(t, err)
	version := create("after")
	p.stop()

	other := start(t, "--role=hub", "--dir="+dir)
	if status := other.wait(); status != 1 || !strings.Contains(other.stderr.String(), "is in PostgreSQL") {
		t.Errorf("without the endpoint: status %d, %s", status, other.stderr)
	}
	_, err = server.query("postgres", "DROP DATABASE "+database)
	noError(t, err)
	_, err = server.query("postgres", "CREATE DATABASE "+database)
	noError(t, err)
	restore := server.command("pg_restore", "--exit-on-error", "--dbname="+database)
	restore.Stdin = strings.NewReader(string(dump))
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("pg_restore: %v: %s", err, out)
	}
	_, err = server.query(database, bump)
	noError(t, err)

	page, err := os.ReadFile("../../docs/operations.md")
	noError(t, err)
	for line := range strings.Lines(bump) {
		if !strings.Contains(string(page), strings.TrimSpace(line)) {
			t.Errorf("docs/operations.md lacks %s", line)
		}
	}
	p = up(t, "--role=hub", "--dir="+dir, endpoint)
	maps = p.client().CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := maps.Get(t.Context(), "after", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the dump was not restored: %v", err)
	}
	if later := create("later"); len(later) <= len(version) {
		t.Errorf("the resource version is %s, was %s", later, version)
	}
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err == nil {
		defer watch.Stop()
		event := <-watch.ResultChan()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before the restore gets %v", err)
	}
	p.stop()
}

// TestBrokenResult: a result that ends early is an error of the query, which kine notices.
func TestBrokenResult(t *testing.T) {
	t.Parallel()
	server := sharedPostgres(t)
	noError(t, wholerows.Check())
	const statement = "SELECT repeat('x', 1000), 1 / (5000 - n) FROM generate_series(1, 6000) n"
	for name, whole := range map[string]bool{"pgx": true, "pgx/v5": false} {
		db, err := sql.Open(name, server.endpoint("postgres"))
		noError(t, err)
		defer db.Close()
		rows, err := db.QueryContext(t.Context(), statement)
		if whole {
			if err == nil {
				rows.Close()
				t.Error("the query has no error")
			}
			continue
		}
		noError(t, err)
		defer rows.Close()
		n := 0
		for rows.Next() {
			n++
		}
		if n == 0 || rows.Err() == nil {
			t.Errorf("the driver without whole results returned %d rows, error %v: the statement shows nothing", n, rows.Err())
		}
	}
}
