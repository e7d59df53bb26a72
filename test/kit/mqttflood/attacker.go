package mqttflood

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// variable marks a process that is to be an attacker.
const (
	variable = "WORKWIRE_MQTTFLOOD"
	lowered  = "with the lowest priority" // its value in one that has it
)

// Attack is what an attacker does, in a process of its own with the lowest priority: elsewhere, an
// attacker does not use the CPUs of the broker and of those who measure.
type Attack struct {
	Kind  string // of [Kinds]
	Addr  string // host:port of the broker
	From  string // address on loopback; "" or not Linux: any
	Topic string

	User, Password string // or
	CA, Cert, Key  []byte // PEM
}

// Attacker is an attack that runs.
type Attacker struct {
	cmd *exec.Cmd
	in  io.Closer
	out bytes.Buffer
}

// Start starts an attack. Call Stop.
func Start(a Attack) (*Attacker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	started := &Attacker{cmd: exec.Command(program)}
	started.cmd.Env = append(os.Environ(), variable+"=yes")
	started.cmd.Stdout, started.cmd.Stderr = &started.out, os.Stderr
	in, err := started.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	started.in = in
	if err := started.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start an attacker: %w", err)
	}
	if _, err = in.Write(append(text, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("start an attacker: %w", err), in.Close(), started.cmd.Wait())
	}
	return started, nil
}

// Stop ends the attack and returns how many messages it has sent.
func (a *Attacker) Stop() (sent int64, err error) {
	_ = a.in.Close()
	if err := a.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the attacker: %w", err)
	}
	_, err = fmt.Sscan(a.out.String(), &sent)
	return sent, err
}

// Main attacks and ends the process, if [Start] has started it. Call it first in main or TestMain.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	sent, err := attack(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(sent)
	os.Exit(0)
}

// attack reads an Attack in JSON from in, and attacks until the end of in.
func attack(in io.Reader) (sent int64, err error) {
	if err := lowerPriority(); err != nil {
		return 0, err
	}
	r := bufio.NewReader(in)
	var a Attack
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		return 0, err
	}
	kind, known := Kinds[a.Kind]
	if !known {
		return 0, fmt.Errorf("no such flood: %q", a.Kind)
	}
	dial, err := a.dial()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return kind(ctx, dial, a.Topic), nil
}

// dial returns a function that connects with a client id that the broker chooses, and a session that
// outlives the connection.
func (a Attack) dial() (Dial, error) {
	var secure *tls.Config
	if a.CA != nil {
		cert, err := tls.X509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(a.CA)
		secure = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{cert}, ServerName: strings.Split(a.Addr, ":")[0]}
	}
	dialer := net.Dialer{Timeout: connectTime}
	if a.From != "" && runtime.GOOS == "linux" {
		dialer.LocalAddr, dialer.Control = &net.TCPAddr{IP: net.ParseIP(a.From)}, chooseLate
	}
	connect := mqttraw.Connect{User: a.User, Password: a.Password, KeepAlive: 600, Props: [][]byte{mqttraw.PropFour(mqttraw.SessionExpiry, 3600)}}
	if a.Kind == wrongPasswords {
		connect.User, connect.Password = "nobody", "wrong" // as expensive as the name of a user
	}
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", a.Addr)
		if err != nil {
			return nil, err
		}
		if a.Kind == halfOpen {
			return conn, nil
		}
		_ = conn.SetDeadline(time.Now().Add(connectTime))
		if secure != nil {
			conn = tls.Client(conn, secure)
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		_, err = conn.Write(connect.Bytes())
		var got *mqttraw.Received
		if err == nil {
			got, err = mqttraw.Read(bufio.NewReaderSize(conn, 16)) // no more than the CONNACK has arrived
		}
		if err == nil && got.Code() >= 0x80 {
			err = fmt.Errorf("the broker answers %v", got)
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, conn.SetDeadline(time.Time{})
	}, nil
}
