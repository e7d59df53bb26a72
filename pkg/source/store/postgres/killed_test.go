package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store/postgres"
	"github.com/workwire/workwire/pkg/source/store/storetest"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/postgreskit"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// replicaVariable has the configuration of a replica, if this program is to be one.
const replicaVariable = "WORKWIRE_TEST_REPLICA"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(replicaVariable); ok {
		if err := runReplica(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// replicaConfig configures a replica.
type replicaConfig struct {
	URL, Broker, ClientID, Journal, Prefix string
	Seed                                   uint64
}

func connectMQTT(addr, user, id string, log *slog.Logger) (*mqtt.Transport, error) {
	return mqtt.New(mqtt.Config{ClientID: id, Logger: log,
		Broker: config.Config{BrokerHost: addr, Username: user, Password: "secret", Topics: storetest.Topics}})
}

// runReplica is a source that writes all the time, until SIGUSR1, and notes in its journal what it
// tries and what has succeeded. SIGTERM ends it.
func runReplica(text string) error {
	var c replicaConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	writing, stop := signal.NotifyContext(ctx, syscall.SIGUSR1)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	transport, err := connectMQTT(c.Broker, "ops", c.ClientID, log)
	if err != nil {
		return err
	}
	client, err := source.New(source.Config{
		SourceID: storetest.Source, Topics: storetest.Topics, Transport: transport, Logger: log,
		Store: postgres.New(postgres.Config{URL: c.URL, Logger: log}),
	})
	if err != nil {
		return err
	}
	journal, err := os.OpenFile(c.Journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() { written <- writeWorks(ctx, writing, client.ManifestWorks(storetest.Cluster), journal, &c) }()
	if err := client.Run(ctx); err != nil {
		return err
	}
	return <-written
}

// writeWorks makes, changes and deletes works, and finds its own ones by its prefix.
func writeWorks(ctx, writing context.Context, works workclient.ManifestWorkInterface, journal *os.File, c *replicaConfig) error {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var own []string
	for n := 0; ; n++ {
		select {
		case <-writing.Done():
			_, err := fmt.Fprintln(journal, "quiet")
			return err
		case <-ticker.C:
		}
		name, value := fmt.Sprint(c.Prefix, "-", n), fmt.Sprint("v", n)
		var do func() error
		switch at := random.IntN(10); {
		case at < 4 || len(own) == 0:
			own = append(own, name)
			do = func() error {
				_, err := works.Create(ctx, storetest.Work(name, value), metav1.CreateOptions{})
				return err
			}
		case at < 8:
			name = own[random.IntN(len(own))]
			do = func() error { return storetest.Change(ctx, works, name, value) }
		default:
			i := random.IntN(len(own))
			name, value = own[i], "deleted"
			own = append(own[:i], own[i+1:]...)
			do = func() error { return works.Delete(ctx, name, metav1.DeleteOptions{}) }
		}
		if _, err := fmt.Fprintln(journal, "try", name, value); err != nil {
			return err
		}
		if err := do(); err != nil {
			slog.Warn("write failed", "work", name, "error", err)
			continue
		}
		if _, err := fmt.Fprintln(journal, "done", name, value); err != nil {
			return err
		}
	}
}

// TestKilledPublishers kills the replica that publishes, as a process and at random times, while both
// write. In the end the cluster has what the database has, the database has every write that has
// succeeded, and no work went back to an earlier generation.
func TestKilledPublishers(t *testing.T) {
	const kills = 6
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	server := postgreskit.Start(t)
	b := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "ops", Password: "secret", Role: acl.Source}, {Username: storetest.Cluster, Password: "secret", Role: acl.Agent},
	}})
	transport, err := connectMQTT(b.Addr, storetest.Cluster, storetest.Cluster, kit.Logger(t))
	kit.NoError(t, err)
	agent := wirekit.StartAgent(t, wirekit.AgentConfig{Cluster: storetest.Cluster, Source: storetest.Source, Topics: storetest.Topics, Transport: transport})
	r := &replicas{T: t, dir: t.TempDir(), url: server.URL(server.Database(t)), broker: b.Addr, seed: seed}
	r.start(0)
	publisher, epoch := 0, r.awaitEpoch(0)
	r.start(1)
	for range kills {
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond) // a random time to kill at
		kit.NoError(t, r.running[publisher].Kill())
		killed := time.Now()
		epoch = r.awaitEpoch(epoch)
		t.Logf("takeover after %v", time.Since(killed).Round(10*time.Millisecond))
		r.start(publisher)
		publisher = 1 - publisher
	}
	r.quiet()
	stored := map[string]string{}
	digested := time.Time{}
	kit.Eventually(t, "the cluster has what the database has", func() error {
		if time.Since(digested) > 2*time.Second { // as agents do each minute
			digested = time.Now()
			if err := agent.SendDigest(t.Context()); err != nil {
				return err
			}
		}
		if stored, err = r.stored(); err != nil {
			return err
		}
		return sameAs(stored, agent)
	})
	t.Logf("%d works", len(stored))
	r.check(stored)
	last := map[types.UID]*wire.Spec{}
	for _, spec := range agent.Specs("") {
		before, known := last[spec.UID]
		// A new publisher sends the last spec once more before the deletion: the agent deletes by it.
		again := known && before.IsDeletion() && spec.Generation == before.Generation-1
		if known && spec.Generation < before.Generation && !spec.IsDeletion() && !again {
			t.Errorf("work %s: generation %d was published after %d", spec.Meta.Name, spec.Generation, before.Generation)
		}
		if !again {
			last[spec.UID] = spec
		}
	}
}

// replicas are the processes of TestKilledPublishers.
type replicas struct {
	*testing.T
	dir, url, broker string
	seed             uint64
	running          [2]*process.Process
	started          int
	journals         []string
	current          [2]string // journals of those that run
}

func (r *replicas) start(i int) {
	r.Helper()
	r.started++
	journal := filepath.Join(r.dir, fmt.Sprint("journal", r.started))
	r.journals, r.current[i] = append(r.journals, journal), journal
	text, err := json.Marshal(replicaConfig{
		URL: r.url, Broker: r.broker, ClientID: fmt.Sprint("ops-", i), Journal: journal, Prefix: fmt.Sprint("w", r.started), Seed: r.seed + uint64(r.started),
	})
	kit.NoError(r, err)
	p, err := process.Start(r.dir, fmt.Sprint("replica", r.started), "env", replicaVariable+"="+string(text), os.Args[0])
	kit.NoError(r, err)
	r.running[i] = p
	r.Cleanup(func() { _ = p.Kill() })
}

func (r *replicas) query(statement string, scan func(pgx.Row) error) error {
	ctx := context.WithoutCancel(r.Context())
	conn, err := pgx.Connect(ctx, r.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return scan(conn.QueryRow(ctx, statement))
}

// awaitEpoch waits until a replica has acquired the lease after epoch.
func (r *replicas) awaitEpoch(epoch int64) (newer int64) {
	r.Helper()
	kit.Eventually(r, "a replica publishes", func() error {
		err := r.query("SELECT epoch FROM workwire_leases", func(row pgx.Row) error { return row.Scan(&newer) })
		if err == nil && newer <= epoch {
			err = fmt.Errorf("the epoch is %d", newer)
		}
		return err
	})
	return newer
}

// quiet ends all writes.
func (r *replicas) quiet() {
	r.Helper()
	for i, p := range r.running {
		kit.Eventually(r, "the replica writes", func() error { _, err := os.Stat(r.current[i]); return err })
		kit.NoError(r, p.Signal(syscall.SIGUSR1))
		kit.Eventually(r, "a replica ends its writes", func() error {
			text, err := os.ReadFile(r.current[i])
			if err == nil && !strings.HasSuffix(string(text), "quiet\n") {
				err = p.Died()
				if err == nil {
					err = fmt.Errorf("it still writes")
				}
			}
			return err
		})
	}
}

// stored returns the values of the works in the database, all of which must be applied.
func (r *replicas) stored() (map[string]string, error) {
	values := map[string]string{}
	var all []byte
	err := r.query("SELECT coalesce(json_agg(data->'work'), '[]')::text FROM workwire_works WHERE removed_at IS NULL", func(row pgx.Row) error {
		var text string
		err := row.Scan(&text)
		all = []byte(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	var works []workv1.ManifestWork
	if err := json.Unmarshal(all, &works); err != nil {
		return nil, err
	}
	for i := range works {
		if !storetest.Applied(&works[i]) || works[i].DeletionTimestamp != nil {
			return nil, fmt.Errorf("work %s is not applied", works[i].Name)
		}
		values[works[i].Name] = valueOf(works[i].Spec.Workload.Manifests[0].Raw)
	}
	return values, nil
}

func valueOf(manifest []byte) string {
	var configMap struct{ Data struct{ Value string } }
	_ = json.Unmarshal(manifest, &configMap)
	return configMap.Data.Value
}

// sent returns the generations of a work that the agent has received, in their order.
func sent(agent *wirekit.Agent, uid types.UID) (generations []string) {
	for _, spec := range agent.Specs(uid) {
		text := fmt.Sprint(spec.Generation)
		if spec.IsDeletion() {
			text += " (deletion)"
		}
		generations = append(generations, text)
	}
	return generations
}

// sameAs compares what the database has with what the agent holds.
func sameAs(stored map[string]string, agent *wirekit.Agent) error {
	held := agent.Holds()
	var extra []string
	for _, spec := range held {
		if _, ok := stored[spec.Meta.Name]; !ok {
			extra = append(extra, fmt.Sprintf("%s generation %d, sent as %v", spec.Meta.Name, spec.Generation, sent(agent, spec.UID)))
		}
	}
	if len(held) != len(stored) || len(extra) > 0 {
		return fmt.Errorf("the cluster has %d works, the database %d; only on the cluster: %v", len(held), len(stored), extra)
	}
	for _, spec := range held {
		if got, want := valueOf(spec.Bundle.Manifests[0].Raw), stored[spec.Meta.Name]; got != want {
			return fmt.Errorf("work %s is %q on the cluster, %q in the database", spec.Meta.Name, got, want)
		}
	}
	return nil
}

// check compares the database with the journals: each work has the value of the last write that
// succeeded, or one that was tried after it.
func (r *replicas) check(stored map[string]string) {
	r.Helper()
	done := 0
	for _, path := range r.journals {
		file, err := os.Open(path)
		if os.IsNotExist(err) {
			continue // killed before it wrote
		}
		kit.NoError(r, err)
		possible := map[string][]string{}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) != 3 {
				continue
			}
			name, value := fields[1], fields[2]
			if fields[0] == "done" {
				possible[name] = nil
				done++
			} else if len(possible[name]) == 0 {
				possible[name] = []string{"deleted"} // it may not exist yet
			}
			possible[name] = append(possible[name], value)
		}
		_ = file.Close()
		for name, values := range possible {
			got, ok := stored[name]
			if !ok {
				got = "deleted"
			}
			found := false
			for _, value := range values {
				found = found || got == value
			}
			if !found {
				r.Errorf("work %s is %q in the database, want one of %q", name, got, values)
			}
		}
	}
	r.Logf("%d writes succeeded", done)
}
