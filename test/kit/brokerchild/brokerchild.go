// Package brokerchild runs a broker in a process of its own: the test's program, started once more.
// A panic of the broker then ends that process and not the test, and its memory can be measured.
//
//	func TestMain(m *testing.M) { brokerchild.Main(m, config) }
//
//	p, err := brokerchild.Start(dir, "small queues")
//	dial(p.Addr)
//	usage, err := p.Usage()
//	err = p.Stop()
package brokerchild

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/procs"
)

// The environment of a process that is to be a broker.
const (
	dirVariable  = "WORKWIRE_BROKERCHILD_DIR"
	nameVariable = "WORKWIRE_BROKERCHILD_CONFIG"
)

// Main runs the tests and ends the process; in a process of [Start] it runs a broker instead. config
// returns the broker's configuration by its name. Listeners, data directory and log are set here.
func Main(m *testing.M, config func(name string) broker.Config) {
	dir := os.Getenv(dirVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := serve(config(os.Getenv(nameVariable)), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve runs the broker until SIGTERM or the end of the standard input. It writes its address as a
// line, and a [Usage] in JSON for each line that it reads.
func serve(cfg broker.Config, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg.Listeners, cfg.DataDir = []broker.Listener{{Address: "127.0.0.1:0"}}, filepath.Join(dir, "data")
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	select {
	case <-b.Ready():
	case err := <-ended:
		return err
	}
	fmt.Println(b.Addr())
	go func() {
		defer stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			debug.FreeOSMemory()
			text, _ := json.Marshal(Usage{Goroutines: runtime.NumGoroutine()})
			fmt.Println(string(text))
		}
	}()
	return <-ended
}

// Usage is what a broker's process uses. Without Linux it has the goroutines only.
type Usage struct {
	Goroutines int
	Files      int // open file descriptors
	RSS, Peak  int // MB
}

// Process is a broker that runs. One goroutine at a time may use it.
type Process struct {
	// Addr is its host:port.
	Addr string
	// Log is the path of its log.
	Log string

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	done chan struct{} // closed when it has ended
	err  error         // its exit status; written before done is closed
}

// Start starts a broker with the named configuration and the data in dir. It returns an error with
// the broker's log if the broker does not start.
func Start(dir, name string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Log: filepath.Join(dir, "broker.log"), cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), dirVariable+"="+dir, nameVariable+"="+name, "GOTRACEBACK=all")
	log, err := os.Create(p.Log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stderr = log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, readErr := p.out.ReadString('\n')
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if readErr != nil {
		<-p.done
		return nil, fmt.Errorf("the broker does not start: %w", p.Died())
	}
	p.Addr = strings.TrimSpace(line)
	return p, nil
}

// Died returns nil while the process runs, then an error with the end of its log.
func (p *Process) Died() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.Log)
	at := max(0, len(text)-4000)
	if i := strings.Index(string(text), "panic: "); i >= 0 {
		at = i
	}
	return fmt.Errorf("the broker ended: %v\n%s", p.cmd.ProcessState, text[at:min(len(text), at+4000)])
}

// Stop ends the process as SIGTERM does. It returns an error if the process does not end, or does
// not end well.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("stop the broker: %w", p.Died())
		}
		return nil
	case <-time.After(kit.Patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to the log
		<-p.done
		return fmt.Errorf("the broker does not stop: %w", p.Died())
	}
}

// Usage returns what the process uses after a garbage collection.
func (p *Process) Usage() (u Usage, err error) {
	if _, err := p.in.Write([]byte("usage\n")); err != nil {
		return u, fmt.Errorf("ask the broker for its usage: %w", err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return u, fmt.Errorf("read the broker's usage: %w", err)
	}
	if err := json.Unmarshal(line, &u); err != nil {
		return u, err
	}
	usage, err := procs.Of(p.cmd.Process.Pid)
	if err != nil {
		return u, nil // not Linux: goroutines only
	}
	u.RSS, u.Peak = int(usage.RSS>>20), int(usage.Peak>>20)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	u.Files = len(files)
	return u, err
}
