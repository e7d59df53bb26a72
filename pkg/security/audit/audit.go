// Package audit writes the audit log of hub and agent: one line of JSON for each decision about
// access, and for each object that is applied or removed (docs/operations.md, Audit log). It has
// names and digests of objects, never their values.
//
//	log, err := audit.Open(audit.Config{Path: "/var/log/workwire/audit.log", Program: "work-agent", Registerer: registry})
//	...
//	go log.Run(ctx)
//	log.Write(audit.Record{Event: audit.Apply, Verdict: "created", Work: "web", Object: "configmaps shop/web"})
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// Event is what a record is about.
type Event string

// Events of the agent and of the hub.
const (
	// Receive is the decision about a message: of a source at the agent, of an agent at the hub.
	Receive Event = "receive"
	// Apply is the attempt to apply a manifest. The verdict "denied" is that of an executor without
	// the right.
	Apply Event = "apply"
	// Remove is the removal of an object.
	Remove Event = "remove"
	// Publish is a spec, or a deletion, that the hub has sent.
	Publish Event = "publish"
	// DryRun is the question of a source what a work would change: a record for the question, and one for
	// each object that the answer tells of, with its result.
	DryRun Event = "dryrun"
	// Approve is that the hub has started what somebody approved.
	Approve Event = "approve"
)

// Record is one line. Empty fields are left out.
type Record struct {
	// Time is set by [Log.Write].
	Time time.Time `json:"time"`
	// Program is set by [Log.Write].
	Program string `json:"program"`
	Event   Event  `json:"event"`
	// Verdict is what was decided or done. Its values are documented.
	Verdict string `json:"verdict"`
	// Effect is whether a received message has changed anything. It is not written: it decides how many of such records
	// an identity may cause.
	Effect bool `json:"-"`
	// Identity is on whose behalf: the source or the cluster that the topic names, which the broker
	// has authorized; or the executor's user name. Empty for Apply and Remove: the agent itself.
	Identity string           `json:"identity,omitempty"`
	Topic    string           `json:"topic,omitempty"`
	Source   wire.SourceID    `json:"source,omitempty"`
	Cluster  wire.ClusterName `json:"cluster,omitempty"`
	Work     string           `json:"work,omitempty"`
	UID      types.UID        `json:"uid,omitempty"`
	// Generation of the work.
	Generation wire.Generation `json:"generation,omitempty"`
	// Object is resource.version.group namespace/name.
	Object string `json:"object,omitempty"`
	// Digest is of the manifest as declared (Apply), or of the content of the spec (Publish,
	// Receive).
	Digest string `json:"digest,omitempty"`
	// LeftOut is set by [Log.Write]: the number of records of this Identity, of dry runs of this Source, that were left
	// out before this one, because it caused too many.
	LeftOut int `json:"leftOut,omitempty"`
	// Reason is a word of a closed list, never the text of an error, which may hold values.
	Reason string `json:"reason,omitempty"`
	// Stage, Revision and Note, the words of who approved, are of Approve.
	Stage    string `json:"stage,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Note     string `json:"note,omitempty"`
}

// Config configures [Open].
type Config struct {
	// Path of the file; "-" for standard output, "" for none.
	Path string
	// Program is the name of the program; required.
	Program string
	// Registerer for the metrics workwire_audit_*; default: none.
	Registerer prometheus.Registerer
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// AddFlag adds the flag --audit-log, which sets path.
func AddFlag(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "audit-log", *path, "file to which a line of JSON is added for each decision about access and each applied or removed object; "+
		"- for standard output; opened again at SIGHUP; default: none")
}

// Log is an audit log. It is safe for concurrent use. A nil Log writes nothing.
type Log struct {
	config  Config
	records *prometheus.CounterVec
	hangups chan os.Signal
	lines   *quota.Lines

	mu      sync.Mutex
	file    io.WriteCloser
	failing bool
	torn    bool // the file ends within a record
}

// Records about messages of one identity, and about its dry runs: 200 a second, as many as 20,000 works have at once; those about
// messages without effect, which cost nothing to send, take a hundred times as much.
var rate = quota.Rate{PerSecond: 200, Burst: 20_000}

const withoutEffect = 100

// admit reports whether r is to be written, and how many records were left out before. Only those about received
// messages, and dry runs, are left out: others are of what somebody decided here.
func (l *Log) admit(r *Record) (leftOut int, ok bool) {
	payer, cost := r.Identity, 1.0
	switch {
	case r.Event == DryRun:
		payer = string(r.Source) // the identity is an executor, which the source chooses
	case r.Event != Receive:
		return 0, true
	case !r.Effect:
		cost = withoutEffect
	}
	return l.lines.Allow(payer, cost, r.Time)
}

// Open opens the file for appending and creates it if it does not exist, readable by its owner only.
// Without a path it returns nil. From then on, SIGHUP does not end the program; Run must be called.
func Open(config Config) (*Log, error) {
	if config.Path == "" {
		return nil, nil
	}
	l := &Log{config: config, lines: quota.NewLines(rate), records: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "workwire", Subsystem: "audit", Name: "records_total",
		Help: "Number of audit records by result: written, failed, or left_out (of an identity that caused too many).",
	}, []string{"result"})}
	l.config.Logger = cmp.Or(config.Logger, slog.Default())
	for _, result := range []string{"written", "failed", "left_out"} {
		l.records.WithLabelValues(result)
	}
	if config.Registerer != nil {
		if err := config.Registerer.Register(l.records); err != nil {
			return nil, fmt.Errorf("register the metrics of the audit log: %w", err)
		}
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	l.hangups = make(chan os.Signal, 1)
	signal.Notify(l.hangups, syscall.SIGHUP) // here, so that an early one does not end the program
	return l, nil
}

// open replaces the file by the one that has the path now. The caller holds mu, or has the only
// reference.
func (l *Log) open() error {
	if l.config.Path == "-" {
		l.file = os.Stdout
		return nil
	}
	file, err := os.OpenFile(l.config.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log (--audit-log): %w", err)
	}
	before := l.file
	l.file, l.torn = file, endsTorn(file)
	if before != nil {
		return before.Close()
	}
	return nil
}

// endsTorn reports whether a file ends within a record, as when its disk was full. One that cannot be read counts as whole.
func endsTorn(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	reader, err := os.Open(file.Name())
	if err != nil {
		return false
	}
	defer reader.Close()
	last := make([]byte, 1)
	_, err = reader.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Run opens the file again at each SIGHUP, after another program has renamed it, until ctx ends. A
// nil Log returns at once.
func (l *Log) Run(ctx context.Context) {
	if l == nil {
		return
	}
	defer signal.Stop(l.hangups)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.hangups:
			l.mu.Lock()
			err := l.open()
			l.mu.Unlock()
			if err != nil {
				l.config.Logger.Error("open the audit log again failed, writing to the former file", "error", err)
			}
		}
	}
}

// Write adds a record. A failure is counted, logged once until a record can be written again, and
// does not keep the program from working.
func (l *Log) Write(r Record) {
	if l == nil {
		return
	}
	r.Time, r.Program = time.Now().UTC(), l.config.Program
	var ok bool
	if r.LeftOut, ok = l.admit(&r); !ok {
		l.records.WithLabelValues("left_out").Inc()
		return
	}
	line, err := json.Marshal(&r)
	if err == nil {
		l.mu.Lock()
		err = l.writeLine(line)
		first := err != nil && !l.failing
		l.failing = err != nil
		l.mu.Unlock()
		if first {
			l.config.Logger.Error("writing the audit log failed; records are lost", "path", l.config.Path, "error", err)
		}
	}
	result := "written"
	if err != nil {
		result = "failed"
	}
	l.records.WithLabelValues(result).Inc()
}

// writeLine writes a record. One that was cut off before it ends with its part, and is not joined to this one. mu is held.
func (l *Log) writeLine(line []byte) error {
	if line = append(line, '\n'); l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(line)
	if n > 0 {
		l.torn = line[n-1] != '\n'
	}
	return err
}
