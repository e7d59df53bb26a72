package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"golang.org/x/crypto/bcrypt"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mqttkit"
)

// TestMain runs the command itself when this binary is started by startBroker.
func TestMain(m *testing.M) {
	if os.Getenv("WORK_BROKER_TEST_RUN") == "1" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	password = "a password"
	topic    = "sources/hub1/clusters/c1/sourceevents"
	filter   = "sources/+/clusters/c1/sourceevents"
)

// process is a broker in a separate process.
type process struct {
	addr string
	cmd  *exec.Cmd
	log  *bufio.Scanner
}

// writeConfig writes a configuration that listens on addr and returns its path.
func writeConfig(t *testing.T, dir, addr string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	kit.NoError(t, err)
	path := filepath.Join(dir, "broker.yaml")
	config := fmt.Sprintf(`
listeners: [{address: %q}]
dataDir: data
users:
- {username: hub1, role: source, passwordHash: %q}
- {username: c1, role: agent, passwordHash: %q}
`, addr, hash, hash)
	kit.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	return path
}

// run runs the command in this process and discards its log.
func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	cmd := newCommand(io.Discard)
	if args == nil {
		args = []string{} // nil would mean those of the test
	}
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	return cmd.ExecuteContext(ctx)
}

func startBroker(t *testing.T, config string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--config="+config)
	cmd.Env = append(os.Environ(), "WORK_BROKER_TEST_RUN=1")
	stderr, err := cmd.StderrPipe()
	kit.NoError(t, err)
	kit.NoError(t, cmd.Start())
	p := &process{cmd: cmd, log: bufio.NewScanner(stderr)}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for p.log.Scan() {
		if _, rest, ok := strings.Cut(p.log.Text(), `msg="broker ready" addresses=[`); ok {
			p.addr, _, _ = strings.Cut(rest, "]")
			go func() { // keeps the pipe from filling up
				for p.log.Scan() {
				}
			}()
			return p
		}
		t.Log(p.log.Text())
	}
	t.Fatal("the broker ended instead of starting")
	return nil
}

// connect connects as user, with a session that outlives the connection.
func connect(t *testing.T, addr, user string) (*mqttkit.Client, *packets.Connack) {
	t.Helper()
	c := mqttkit.Dial(t, addr, user, password)
	return c, c.Connect(user, 3600)
}

// TestKilledBrokerKeepsAcknowledgedMessages kills the broker with SIGKILL several times while it
// receives messages for a disconnected agent. Every message that was acknowledged must reach the
// agent, in order and once.
func TestKilledBrokerKeepsAcknowledgedMessages(t *testing.T) {
	dir := t.TempDir()
	config := writeConfig(t, dir, "127.0.0.1:0")
	p := startBroker(t, config)
	agent, _ := connect(t, p.addr, "c1")
	agent.Subscribe(filter)
	_ = agent.Close()

	acked, next := map[int]bool{}, 0
	for range 3 {
		publishUntilKilled(t, p, acked, &next)
		p = startBroker(t, config)
	}

	agent, connack := connect(t, p.addr, "c1")
	if !connack.SessionPresent {
		t.Fatal("the session is lost")
	}
	receiveAll(t, agent, acked)
	t.Logf("%d messages acknowledged, all arrived", len(acked))
}

// receiveAll receives until every acknowledged message has arrived, in order and once. A SUBACK may
// come in between.
func receiveAll(t *testing.T, agent *mqttkit.Client, acked map[int]bool) {
	t.Helper()
	_ = agent.SetDeadline(time.Now().Add(kit.Patience))
	last := -1
	seen := map[int]bool{}
	for missing(acked, seen) > 0 {
		packet := agent.Next()
		if suback, ok := packet.(*packets.Suback); ok && suback.Reasons[0] <= 1 {
			continue
		}
		publish, ok := packet.(*packets.Publish)
		if !ok {
			t.Fatalf("got %v", packet)
		}
		var n int
		if _, err := fmt.Sscanf(string(publish.Payload), "%d", &n); err != nil {
			t.Fatal(err)
		}
		if n <= last {
			t.Fatalf("message %d came after %d", n, last)
		}
		last = n
		seen[n] = true
		agent.Ack(publish.PacketID)
	}
}

func missing(acked, seen map[int]bool) int {
	n := 0
	for m := range acked {
		if !seen[m] {
			n++
		}
	}
	return n
}

// publishUntilKilled publishes numbered messages, kills the broker after a thousand
// acknowledgements, and records those that arrived until then.
func publishUntilKilled(t *testing.T, p *process, acked map[int]bool, next *int) {
	t.Helper()
	source, _ := connect(t, p.addr, "hub1")
	_ = source.SetDeadline(time.Now().Add(kit.Patience))
	window := make(chan struct{}, 500)
	first := *next
	go func() {
		for n := first; ; n++ {
			window <- struct{}{}
			if source.Publish(uint16(n%60000+1), topic, []byte(fmt.Sprint(n))) != nil {
				return
			}
		}
	}()
	for {
		packet, err := packets.ReadPacket(source.Reader)
		if err != nil {
			break // killed
		}
		ack, ok := packet.Content.(*packets.Puback)
		if !ok || ack.ReasonCode != 0 || int(ack.PacketID) != *next%60000+1 {
			t.Fatalf("instead of the acknowledgement of %d came %v", *next, packet.Content)
		}
		acked[*next] = true
		*next++
		<-window
		if *next == first+1000 {
			kit.NoError(t, p.cmd.Process.Kill())
		}
	}
	_ = source.Close()
	for len(window) > 0 { // let the publisher see it
		<-window
	}
	_ = p.cmd.Wait()
	*next += 1000 // those under way may or may not have been kept
}

func TestSigterm(t *testing.T) {
	p := startBroker(t, writeConfig(t, t.TempDir(), "127.0.0.1:0"))
	connect(t, p.addr, "c1")
	kit.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	defer func() { _ = busy.Close() }()
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "config.yaml")
		kit.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	kit.NoError(t, err)
	user := fmt.Sprintf("users: [{username: c1, role: agent, passwordHash: %q}]\n", hash)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no config":        {nil, "--config is required"},
		"unknown argument": {[]string{"--config=x", "serve"}, `unknown command "serve"`},
		"unknown flag":     {[]string{"--configuration=x"}, "unknown flag: --configuration"},
		"bad log format":   {[]string{"--config=x", "--log-format=xml"}, `--log-format must be text or json, got "xml"`},
		"no such file":     {[]string{"--config=/does/not/exist"}, "/does/not/exist: no such file"},
		"unknown key":      {[]string{"--config=" + write("listner: []\n")}, `unknown field "listner"`},
		"port in use":      {[]string{"--config=" + write(fmt.Sprintf("listeners: [{address: %q}]\n%s", busy.Addr(), user))}, "address already in use"},
		"data dir":         {[]string{"--config=" + write("listeners: [{address: '127.0.0.1:0'}]\ndataDir: /dev/null/x\n"+user)}, "/dev/null"},
		"no certificate": {[]string{"--config=" + write("listeners: [{address: '127.0.0.1:0', tls: {certFile: nothing.crt, keyFile: nothing.key}}]\n"+user)},
			"nothing.crt: no such file"},
		"no password file": {[]string{"--config=" + write("listeners: [{address: '127.0.0.1:0'}]\nusers: [{username: c1, role: agent, passwordFile: nothing}]\n")},
			"nothing: no such file"},
		"passwd with arguments": {[]string{"passwd", "secret"}, "standard input"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
			defer cancel()
			err := run(ctx, test.args, strings.NewReader(""), io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestTwoBrokersOneDatabase(t *testing.T) {
	config := writeConfig(t, t.TempDir(), "127.0.0.1:0")
	startBroker(t, config)
	err := run(t.Context(), []string{"--config=" + config}, nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "another process still holds it") {
		t.Errorf("got %v", err)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); err != nil {
		t.Errorf("got %v", err)
	}
	for _, word := range []string{"passwd", "-config", "-log-format", "-v, --v"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the help does not mention %s:\n%s", word, out.String())
		}
	}
}

func TestPasswd(t *testing.T) {
	var out bytes.Buffer
	kit.NoError(t, run(t.Context(), []string{"passwd"}, strings.NewReader("tiger\n"), &out))
	if err := bcrypt.CompareHashAndPassword(bytes.TrimSpace(out.Bytes()), []byte("tiger")); err != nil {
		t.Errorf("the hash %q does not fit: %v", out.String(), err)
	}
	for input, want := range map[string]string{"": "empty", "one\ntwo\n": "more than one line", strings.Repeat("x", 73): "72 bytes"} {
		if err := run(t.Context(), []string{"passwd"}, strings.NewReader(input), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: got %v, want an error with %q", input, err, want)
		}
	}
}

// TestPasswdInterrupted: a password that nobody types is not waited for after the end of the context.
func TestPasswdInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stdin, typist := io.Pipe()
	defer time.AfterFunc(kit.Patience, func() { _ = typist.Close() }).Stop()
	defer func() { _ = typist.Close() }()
	if err := run(ctx, []string{"passwd"}, stdin, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRandomPassword: the broker accepts the password that is in the file, and its hash is quick.
func TestRandomPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c1.password")
	var out bytes.Buffer
	kit.NoError(t, run(t.Context(), []string{"passwd", "--random=" + file}, strings.NewReader(""), &out))
	password, err := os.ReadFile(file)
	kit.NoError(t, err)
	config := filepath.Join(t.TempDir(), "work-broker.yaml")
	yaml := fmt.Sprintf("listeners: [{address: '127.0.0.1:0'}]\nusers: [{username: c1, role: agent, passwordHash: %q}]\n", strings.TrimSpace(out.String()))
	kit.NoError(t, os.WriteFile(config, []byte(yaml), 0o600))
	if _, err := broker.LoadConfig(config); err != nil {
		t.Error(err)
	}
	if strings.Contains(out.String(), strings.TrimSpace(string(password))) || !strings.HasPrefix(out.String(), "$7$101$") {
		t.Errorf("printed %q", out.String())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := run(t.Context(), []string{"passwd", "--random=" + file}, strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("a file that exists: %v", err)
	}
}
