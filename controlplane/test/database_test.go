package test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // a driver that does not read whole results
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/controlplane/internal/plane"
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
	_, err = server.query(database, `INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) VALUES ('/expiring', 1, 0, 0, 0, 1, 'x')`)
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
	eventually(t, "what was there at the start expires", func() error {
		deleted, err := server.query(database, `SELECT count(*) FROM kine WHERE name = '/expiring' AND deleted = 1`)
		if err == nil && deleted != "1" {
			err = errors.New("it is there")
		}
		return err
	})
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

// slowly has rows of the test become visible in another order than that of their ids: each write takes its id, and
// ends up to 200 ms later.
const slowly = `
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(random() * 0.2); RETURN NULL; END $$;
CREATE TRIGGER slowly AFTER INSERT ON kine FOR EACH ROW WHEN (NEW.name LIKE '/order/%') EXECUTE FUNCTION slowly();`

// follow lists the keys of a prefix, and watches from the revision of the list on until it has seen all writes. It fails the test if
// one does not come.
func follow(t *testing.T, client *clientv3.Client, prefix string, writes int) {
	list, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Errorf("list: %v", err)
		return
	}
	seen := map[string]bool{}
	for _, kv := range list.Kvs {
		seen[string(kv.Key)] = true
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(list.Header.Revision+1))
	for len(seen) < writes {
		change, ok := <-changes
		if !ok {
			t.Errorf("who listed %d at revision %d has seen %d of %d writes to %s", len(list.Kvs), list.Header.Revision, len(seen), writes, prefix)
			return
		}
		for _, event := range change.Events {
			seen[string(event.Kv.Key)] = true
		}
	}
}

// put creates a key, which must not exist.
func put(t *testing.T, client *clientv3.Client, key string) {
	if _, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "x")).Commit(); err != nil {
		t.Errorf("write %s: %v", key, err)
	}
}

// TestNothingBetweenListAndWatch: who lists while others write, and watches from the revision of the list on, sees every write, also
// those that had begun before others that are in the list, and those that came while it was empty.
func TestNothingBetweenListAndWatch(t *testing.T) {
	t.Parallel()
	server, dir := sharedPostgres(t), t.TempDir()
	database := server.createDatabase(t)
	up(t, "--role=hub", "--dir="+dir, server.endpointFile(t, database))
	_, err := server.query(database, slowly)
	noError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.Replace(plane.EtcdURL, "unix://", "unix://"+dir+"/", 1)}})
	noError(t, err)
	defer client.Close()

	t.Run("written at once", func(t *testing.T) { listsAmidWrites(t, client) })
	t.Run("empty", func(t *testing.T) { listsBeforeWrites(t, client) })
}

// listsAmidWrites lists while rows become visible in another order than that of their ids.
func listsAmidWrites(t *testing.T, client *clientv3.Client) {
	const writers, writes, between, prefix = 12, 40, 24, "/order/"
	var running sync.WaitGroup
	var begun atomic.Int32
	for i := range writers {
		running.Go(func() {
			for n := range writes {
				if begun.Add(1)%between == 1 {
					running.Go(func() { follow(t, client, prefix, writers*writes) })
				}
				put(t, client, fmt.Sprintf("%s%d-%d", prefix, i, n))
			}
		})
	}
	running.Wait()
}

// listsBeforeWrites lists what is not there yet, again and again, while the first writes to it come: some lists are empty.
func listsBeforeWrites(t *testing.T, client *clientv3.Client) {
	const rounds, readers, writers = 60, 6, 12
	for round := range rounds {
		prefix := fmt.Sprintf("/empty/%d/", round)
		var running sync.WaitGroup
		for range readers {
			running.Go(func() { follow(t, client, prefix, writers) })
		}
		for i := range writers {
			running.Go(func() { put(t, client, fmt.Sprintf("%s%d", prefix, i)) })
		}
		running.Wait()
	}
}
