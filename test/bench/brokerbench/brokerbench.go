// Package brokerbench measures work-broker, and Mosquitto with the same clients in the same run. The
// clients are plain sockets of this process: they build and read packets with as little as possible,
// because they share the machine with the broker.
package brokerbench

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/mqttflood"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
)

// Options say what to measure. All are required but Settle.
type Options struct {
	Broker   string        // program
	Clients  int           // connections at rest
	Clusters int           // agents that answer in round trips
	Trips    int           // round trips
	Back     int           // connections that are back after a restart
	Logins   int           // users with passwords
	Settle   time.Duration // before memory is read
	Flood    time.Duration // how long round trips are measured without a flood, and with each kind of it
}

// bench is the broker that is measured, with what all measurements share.
type bench struct {
	subject.Config
	Options
	board *report.Board
	certs *authority
}

// Run measures the rows of board that are about the broker.
func Run(ctx context.Context, c subject.Config, o Options, board *report.Board) error {
	var floods []string
	for kind := range mqttflood.Kinds {
		floods = append(floods, flood+kind)
	}
	if !board.Wants(append([]string{atRest, trips, traffic, first, back, logins, bcrypts}, floods...)...) {
		return nil
	}
	certs, err := newAuthority(filepath.Join(c.Dir, "broker-certificates"))
	if err != nil {
		return err
	}
	b := &bench{Config: c, Options: o, board: board, certs: certs}
	for run := range c.Runs {
		for _, part := range []struct {
			rows    []string
			measure func(context.Context, int) error
		}{{[]string{atRest}, b.atRest}, {[]string{trips, traffic}, b.roundTrips}, {[]string{first, back}, b.back}, {[]string{logins}, b.randomLogins}, {[]string{bcrypts}, b.chosenLogins}, {floods, b.floods}} {
			if !board.Wants(part.rows...) {
				continue
			}
			if err := part.measure(ctx, run); err != nil {
				return fmt.Errorf("measure %s: %w", strings.Join(part.rows, ", "), err)
			}
		}
	}
	return nil
}

// server is a broker that runs.
type server struct {
	addr string
	pid  int
	stop func() error
}

var ready = regexp.MustCompile(`msg="broker ready".* addresses=\[(127\.0\.0\.1:\d+)\]`)

// start starts the work-broker with the configuration in YAML, without its listener's address. With
// address "" it listens at a free port.
func (b *bench) start(ctx context.Context, dir, address, yaml string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	file := filepath.Join(dir, "broker.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(yaml, "ADDRESS", address, 1)), 0o600); err != nil {
		return nil, err
	}
	p, err := process.Start(dir, "broker", b.Options.Broker, "--config="+file)
	if err != nil {
		return nil, err
	}
	addr, err := p.Line(ctx, func(line string) string {
		if match := ready.FindStringSubmatch(line); match != nil {
			return match[1]
		}
		return ""
	})
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return &server{addr: addr, pid: p.PID(), stop: p.Stop}, nil
}

// tlsConfig is the configuration of a work-broker whose clients have certificates.
func (b *bench) tlsConfig() string {
	return fmt.Sprintf("listeners:\n- address: ADDRESS\n  tls: {certFile: %s, keyFile: %s, clientCAFile: %s}\ndataDir: data\n",
		b.certs.serverCert, b.certs.serverKey, b.certs.ca)
}

// startMosquitto starts a Mosquitto whose clients have certificates.
func (b *bench) startMosquitto(ctx context.Context, dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p, err := mosquittokit.Start(ctx, mosquittokit.Config{
		Dir: dir, Users: []broker.User{{Username: source, Role: acl.Source}},
		TLS: &mosquittokit.TLS{CertFile: b.certs.serverCert, KeyFile: b.certs.serverKey, ClientCAFile: b.certs.ca},
	})
	if err != nil {
		return nil, err
	}
	return &server{addr: p.Addr, pid: p.PID(), stop: p.Stop}, nil
}

// both runs measure with a new work-broker and, if it is installed, a new Mosquitto.
func (b *bench) both(ctx context.Context, run int, name string, measure func(*server) (float64, error)) (measured, baseline float64, err error) {
	dir := func(broker string) string { return filepath.Join(b.Dir, fmt.Sprintf("%s-%s-%d", broker, name, run)) }
	s, err := b.start(ctx, dir("work-broker"), "", b.tlsConfig())
	if err != nil {
		return 0, 0, err
	}
	measured, err = measure(s)
	if err := errors.Join(err, s.stop()); err != nil {
		return 0, 0, err
	}
	other, err := b.startMosquitto(ctx, dir("mosquitto"))
	if err != nil {
		b.Progress("no figures of Mosquitto: %v", err)
		return measured, 0, nil
	}
	baseline, err = measure(other)
	return measured, baseline, errors.Join(err, other.stop())
}

// atRest measures the memory of connections over which nothing is sent.
func (b *bench) atRest(ctx context.Context, run int) error {
	measured, baseline, err := b.both(ctx, run, "rest", func(s *server) (kilobytes float64, err error) {
		if err := procs.Pause(ctx, b.Settle); err != nil { // at rest, too
			return 0, err
		}
		before, err := procs.Of(s.pid)
		if err != nil {
			return 0, err
		}
		f, took, err := b.connectAll(ctx, s.addr, b.Clients)
		if err != nil {
			return 0, err
		}
		defer f.close()
		if err := procs.Pause(ctx, b.Settle); err != nil {
			return 0, err
		}
		after, err := procs.Of(s.pid)
		kilobytes = float64(after.RSS-before.RSS) / float64(b.Clients) / 1024
		b.Progress("run %d: %d connections in %v, %.1f KB each", run+1, b.Clients, took.Round(time.Millisecond), kilobytes)
		return kilobytes, err
	})
	b.board.Add(atRest, report.Sample{Measured: measured, Baseline: baseline})
	return err
}

// roundTrips measures specs that are answered by statuses.
func (b *bench) roundTrips(ctx context.Context, run int) error {
	var memory, cpu []float64
	measured, baseline, err := b.both(ctx, run, "trips", func(s *server) (perSecond float64, err error) {
		w, err := b.newTraffic(ctx, s.addr)
		if err != nil {
			return 0, err
		}
		defer w.close()
		if _, err := w.run(ctx, b.Trips/10+1); err != nil { // warms both sides up
			return 0, err
		}
		before, err := procs.Of(s.pid)
		if err != nil {
			return 0, err
		}
		took, err := w.run(ctx, b.Trips)
		if err != nil {
			return 0, err
		}
		after, err := procs.Of(s.pid)
		memory = append(memory, float64(after.RSS)/(1<<20))
		cpu = append(cpu, (after.CPU - before.CPU).Seconds())
		perSecond = float64(b.Trips) / took.Seconds()
		b.Progress("run %d: %.0f round trips/s, %.2f s of CPU in %v, %.0f MB", run+1, perSecond, cpu[len(cpu)-1], took.Round(time.Millisecond), memory[len(memory)-1])
		return perSecond, err
	})
	if err != nil {
		return err
	}
	memory, cpu = append(memory, 0), append(cpu, 0)
	b.board.Add(trips, report.Sample{Measured: measured, Baseline: baseline, Detail: map[string]any{"brokerCPUSeconds": cpu[0], "mosquittoCPUSeconds": cpu[1]}})
	b.board.Add(traffic, report.Sample{Measured: memory[0], Baseline: memory[1]})
	return nil
}

// back measures how long a client, and all of them, need to be back after the broker was restarted.
func (b *bench) back(ctx context.Context, run int) error {
	dir := filepath.Join(b.Dir, fmt.Sprintf("work-broker-back-%d", run))
	s, err := b.start(ctx, dir, "", b.tlsConfig())
	if err != nil {
		return err
	}
	f, before, err := b.connectAll(ctx, s.addr, b.Back)
	if err := errors.Join(err, s.stop()); err != nil {
		return err
	}
	f.close()
	secure, err := b.certs.client(cluster(0), "agents")
	if err != nil {
		return err
	}
	begin := time.Now()
	if s, err = b.start(ctx, dir, s.addr, b.tlsConfig()); err != nil {
		return err
	}
	c, err := dialUntil(ctx, s.addr, 0, secure)
	if err != nil {
		return errors.Join(err, s.stop())
	}
	took := time.Since(begin)
	_ = c.Close()
	b.board.Add(first, report.Sample{Measured: took.Seconds()})
	b.Progress("run %d: first connection %v after the start, with %d sessions", run+1, took.Round(time.Millisecond), b.Back)
	f, again, err := b.connectAll(ctx, s.addr, b.Back)
	if err == nil {
		b.board.Add(back, report.Sample{Measured: again.Seconds(), Detail: map[string]any{"firstSeconds": before.Seconds()}})
		b.Progress("run %d: %d connections back in %v, at first %v", run+1, b.Back, again.Round(time.Millisecond), before.Round(time.Millisecond))
		f.close()
	}
	return errors.Join(err, s.stop())
}

// randomLogins measures logins with the hashes that random passwords have.
func (b *bench) randomLogins(ctx context.Context, run int) error {
	const iterations = 101 // of work-broker passwd --random
	salt := make([]byte, 64)
	key, err := pbkdf2.Key(sha512.New, password, salt, iterations, sha512.Size)
	if err != nil {
		return err
	}
	encode := base64.StdEncoding.EncodeToString
	return b.logins(ctx, run, logins, fmt.Sprintf("$7$%d$%s$%s", iterations, encode(salt), encode(key)))
}

// chosenLogins measures logins with bcrypt.
func (b *bench) chosenLogins(ctx context.Context, run int) error {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	return b.logins(ctx, run, bcrypts, string(hash))
}

// logins measures the logins of users with passwords of that hash, all at once, to a broker that
// knows none yet.
func (b *bench) logins(ctx context.Context, run int, row, hash string) error {
	var yaml strings.Builder
	yaml.WriteString("listeners:\n- address: ADDRESS\ndataDir: data\nusers:\n")
	for i := range b.Logins {
		fmt.Fprintf(&yaml, "- {username: %s, role: agent, passwordHash: %q}\n", cluster(i), hash)
	}
	s, err := b.start(ctx, filepath.Join(b.Dir, fmt.Sprintf("work-broker-%s-%d", map[string]string{logins: "random", bcrypts: "chosen"}[row], run)), "", yaml.String())
	if err != nil {
		return err
	}
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	conns := make([]*conn, b.Logins)
	for i := range b.Logins {
		group.Go(func() (err error) {
			conns[i], err = dialUntil(ctx, s.addr, i, nil)
			return err
		})
	}
	err = group.Wait()
	took := time.Since(start)
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
	if err == nil {
		b.board.Add(row, report.Sample{Measured: took.Seconds()})
		b.Progress("run %d: %s: %d in %v", run+1, strings.TrimPrefix(row, "broker: "), b.Logins, took.Round(time.Millisecond))
	}
	return errors.Join(err, s.stop())
}
