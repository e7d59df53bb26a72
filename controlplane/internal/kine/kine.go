// Package kine is the program that serves a PostgreSQL database as etcd's API, in place of etcd: kine
// of the k3s project, with its driver for PostgreSQL only.
//
//	os.Exit(kine.Run(os.Stdin, os.Stderr))
package kine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	_ "github.com/k3s-io/kine/pkg/drivers/pgsql" // registers postgres and postgresql
	"github.com/k3s-io/kine/pkg/server"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/workwire/workwire/controlplane/internal/plane"
	"github.com/workwire/workwire/controlplane/internal/wholerows"
)

const (
	// connections limits those to the database: by default a PostgreSQL has 100 for all.
	connections = 20
	// maxRequest is the size that etcd allows, 1.5 MiB, and what gRPC adds.
	maxRequest = 2 << 20
	// emulated is the version of etcd whose features kine has, among them progress of watches on request.
	emulated      = "3.5.13"
	graceful      = 2 * time.Second
	notifyEvery   = 5 * time.Second
	compactEvery  = 5 * time.Minute
	compactWithin = time.Minute
	// retained is how many of the newest revisions compaction leaves.
	retained = 1000
	batch    = 1000
	poll     = 500
	// maxMessage is how many bytes of a message are logged.
	maxMessage = 1 << 10
)

// Run serves the database whose URL is the text of in, on the socket of [plane.EtcdURL], until SIGTERM.
// It logs to out, and returns the exit status. Neither has the password of the URL.
func Run(in io.Reader, out io.Writer) int {
	data, err := io.ReadAll(in)
	if err != nil {
		fmt.Fprintln(out, "reading the URL of the database:", err)
		return 1
	}
	endpoint := string(data)
	logrus.SetOutput(out)
	logrus.SetFormatter(redactor{&logrus.TextFormatter{FullTimestamp: true, DisableColors: true}, secrets(endpoint)})
	// kine ends the process when the database is lost in a compaction. The next one reads from the
	// database how far that one got.
	logrus.StandardLogger().ExitFunc = func(int) {}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, endpoint); err != nil {
		logrus.Error(err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, endpoint string) error {
	if err := errors.Join(plane.CheckDatastore(endpoint), wholerows.Check()); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	stop := context.AfterFunc(ctx, end) // until it serves
	_, backend, err := drivers.New(life, &running, &drivers.Config{
		Endpoint:             endpoint,
		ConnectionPoolConfig: generic.ConnectionPoolConfig{MaxIdle: connections, MaxOpen: connections},
		CompactInterval:      compactEvery, CompactTimeout: compactWithin, CompactMinRetain: retained,
		CompactBatchSize: batch, PollBatchSize: poll,
	})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	if err := backend.Start(life); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	stop()
	listener, err := net.Listen("unix", strings.TrimPrefix(plane.EtcdURL, "unix://"))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	api := newServer()
	server.New(&atomically{Backend: backend}, "unix", notifyEvery, emulated).Register(api)
	running.Go(func() {
		<-ctx.Done()
		timer := time.AfterFunc(graceful, api.Stop)
		defer timer.Stop()
		api.GracefulStop()
	})
	if err := api.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// atomically is a backend whose answers have a revision up to which they are all. kine asks for how far its writes are after
// it has found nothing: whoever watched from there on would miss what was written in between. And it takes for that the write
// that returned last: of two at a time, it may be the older one.
type atomically struct {
	server.Backend
	known atomic.Int64 // a revision up to which all is written, the highest that a write or a list has returned
}

// CurrentRevision returns a revision up to which all is written, and no lower one than a write has returned.
func (b *atomically) CurrentRevision(ctx context.Context) (int64, error) {
	current, err := b.Backend.CurrentRevision(ctx)
	return max(current, b.known.Load()), err
}

// reach remembers that all is written up to a revision.
func (b *atomically) reach(revision int64) {
	for known := b.known.Load(); known < revision && !b.known.CompareAndSwap(known, revision); known = b.known.Load() {
	}
}

// Create makes an object.
func (b *atomically) Create(ctx context.Context, key string, value []byte, lease int64) (int64, error) {
	revision, err := b.Backend.Create(ctx, key, value, lease)
	if err == nil {
		b.reach(revision) // a write returns when none is under way that could get a lower revision
	}
	return revision, err
}

// Update replaces an object, if it has that revision.
func (b *atomically) Update(ctx context.Context, key string, value []byte, revision, lease int64) (int64, *server.KeyValue, bool, error) {
	revision, kv, updated, err := b.Backend.Update(ctx, key, value, revision, lease)
	if updated && err == nil {
		b.reach(revision)
	}
	return revision, kv, updated, err
}

// Delete deletes an object, if it has that revision.
func (b *atomically) Delete(ctx context.Context, key string, revision int64) (int64, *server.KeyValue, bool, error) {
	revision, kv, deleted, err := b.Backend.Delete(ctx, key, revision)
	if deleted && err == nil {
		b.reach(revision)
	}
	return revision, kv, deleted, err
}

// List returns objects, and up to which revision they are all.
func (b *atomically) List(ctx context.Context, prefix, startKey string, limit, revision int64, keysOnly bool) (int64, []*server.KeyValue, error) {
	if revision != 0 {
		return b.listAt(ctx, prefix, startKey, limit, revision, keysOnly)
	}
	before, err := b.CurrentRevision(ctx)
	if err != nil {
		return 0, nil, err
	}
	counted, queries := wholerows.Counting(ctx)
	reached, found, err := b.Backend.List(counted, prefix, startKey, limit, 0, keysOnly)
	if err != nil || len(found) == 0 {
		return before, nil, err
	}
	b.reach(reached)
	if queries.Load() > 1 {
		// Where there was nothing, kine lists again, only up to how far its writes were, and says that this is all: what it found may
		// be gone, and more be there.
		_, found, err = b.listAt(ctx, prefix, startKey, limit, reached, keysOnly)
	}
	return reached, found, err
}

// listAt lists objects of a revision. Where there are none, kine refuses one that is above that of the write that returned last.
func (b *atomically) listAt(ctx context.Context, prefix, startKey string, limit, revision int64, keysOnly bool) (int64, []*server.KeyValue, error) {
	reached, found, err := b.Backend.List(ctx, prefix, startKey, limit, revision, keysOnly)
	if known := b.known.Load(); errors.Is(err, server.ErrFutureRev) && revision <= known {
		return known, nil, nil
	}
	return reached, found, err
}

// Get returns an object, nil if there is none, and up to which revision that is so.
func (b *atomically) Get(ctx context.Context, key, rangeEnd string, limit, revision int64, keysOnly bool) (int64, *server.KeyValue, error) {
	before, err := b.CurrentRevision(ctx)
	if err != nil {
		return 0, nil, err
	}
	reached, found, err := b.Backend.Get(ctx, key, rangeEnd, limit, revision, keysOnly)
	switch {
	case errors.Is(err, server.ErrFutureRev) && revision <= before: // as for lists
		return before, nil, nil
	case revision != 0 || err != nil:
		return reached, found, err
	case found == nil:
		return before, nil, nil
	}
	return max(before, found.ModRevision), found, nil // below reached, writes of other objects may be under way
}

// Count returns up to which revision the objects are counted, and how many they are. kine says, of those of a revision, how far its
// writes are by now, and takes that for the revision of the page whose rest it counts.
func (b *atomically) Count(ctx context.Context, prefix, startKey string, revision int64) (int64, int64, error) {
	reached, count, err := b.Backend.Count(ctx, prefix, startKey, revision)
	if revision != 0 {
		reached = revision
	}
	return reached, count, err
}

func newServer() *grpc.Server {
	return grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(math.MaxInt32),
	)
}

// secrets returns the texts that must not be logged: the password, as it is and as it stands in the URL.
func secrets(endpoint string) []string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return []string{endpoint}
	}
	password, ok := u.User.Password()
	if !ok || password == "" {
		return nil
	}
	_, encoded, _ := strings.Cut(u.User.String(), ":")
	found := []string{password, encoded}
	if userinfo, _, ok := strings.Cut(endpoint, "@"); ok {
		if _, raw, ok := strings.Cut(userinfo[strings.Index(userinfo, "//")+2:], ":"); ok {
			found = append(found, raw)
		}
	}
	return found
}

// redactor is a formatter of logs that replaces secrets, and leaves out what requests have beside their key.
type redactor struct {
	logrus.Formatter
	secrets []string
}

// Format formats an entry.
func (r redactor) Format(entry *logrus.Entry) ([]byte, error) {
	short := *entry
	short.Message = r.redact(withoutRequest(entry.Message))
	if len(short.Message) > maxMessage {
		short.Message = strings.ToValidUTF8(short.Message[:maxMessage], "") + "…"
	}
	data, err := r.Formatter.Format(&short)
	return []byte(r.redact(string(data))), err
}

func (r redactor) redact(text string) string {
	for _, secret := range r.secrets {
		text = strings.ReplaceAll(text, secret, "…")
	}
	return text
}

// firstKey is the key in the text of a request, before the value.
var firstKey = regexp.MustCompile(`key:"(?:[^"\\]|\\.)*"`)

// withoutRequest returns a message about a write that failed with the key in place of the request, which has the whole object.
func withoutRequest(message string) string {
	for _, failed := range []string{"error in txn ", "error in put "} {
		text, ok := strings.CutPrefix(message, failed)
		if !ok {
			continue
		}
		quoted := false
		for i := 0; i < len(text); i++ {
			switch {
			case quoted && text[i] == '\\':
				i++
			case text[i] == '"':
				quoted = !quoted
			case !quoted && strings.HasPrefix(text[i:], ": "): // the cause; in the request, no space follows a colon
				return failed + firstKey.FindString(text[:i]) + text[i:]
			}
		}
		return strings.TrimSpace(failed)
	}
	return message
}
