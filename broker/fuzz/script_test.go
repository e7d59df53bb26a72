package fuzz

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// Operations of a step.
const (
	opSend  = "send"  // sends the data
	opDeaf  = "deaf"  // does not read from now on
	opHalf  = "half"  // closes the direction to the broker
	opReset = "reset" // closes the connection with a reset
	opPause = "pause" // waits until the broker has answered something, for some milliseconds at most
)

// step is one thing that a script does on one of its connections, which is opened by the first.
type step struct {
	conn  int
	op    string
	data  []byte
	times int // how often the data is sent in a row
}

// script is what an attacker does. Its connections are closed at its end.
type script []step

// String returns the script in the format of the corpus, which [parseScript] reads.
func (s script) String() string {
	var out strings.Builder
	for _, st := range s {
		fmt.Fprintf(&out, "%d %s", st.conn, st.op)
		if st.op == opSend {
			fmt.Fprintf(&out, " %x", st.data)
			if st.times > 1 {
				fmt.Fprintf(&out, " x %d", st.times)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// Limits of a script.
const (
	maxConns  = 64
	maxRepeat = 1 << 20
	maxSent   = 64 << 20 // bytes of a step
)

// parseScript parses the format of the corpus: a line for each step, with the number of the
// connection, the operation and for send the bytes in hexadecimal, which may be in several words, and
// how often they are sent. Empty lines and those that begin with # are comments.
func parseScript(text string) (script, error) {
	var out script
	for number, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		st, err := parseStep(words)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		out = append(out, st)
	}
	return out, nil
}

func parseStep(words []string) (st step, err error) {
	if len(words) < 2 {
		return st, fmt.Errorf("no operation")
	}
	if st.conn, err = strconv.Atoi(words[0]); err != nil || st.conn < 0 || st.conn >= maxConns {
		return st, fmt.Errorf("connection %s: must be 0 to %d", words[0], maxConns-1)
	}
	st.op, st.times = words[1], 1
	words = words[2:]
	if st.op != opSend {
		if len(words) > 0 || !slices.Contains([]string{opDeaf, opHalf, opReset, opPause}, st.op) {
			return st, fmt.Errorf("unknown operation %q", st.op)
		}
		return st, nil
	}
	if n := len(words); n >= 2 && words[n-2] == "x" {
		if st.times, err = strconv.Atoi(words[n-1]); err != nil || st.times < 1 || st.times > maxRepeat {
			return st, fmt.Errorf("repeated %s times: must be 1 to %d", words[n-1], maxRepeat)
		}
		words = words[:n-2]
	}
	if st.data, err = hex.DecodeString(strings.Join(words, "")); err != nil {
		return st, err
	}
	if len(st.data)*st.times > maxSent {
		return st, fmt.Errorf("more than %d bytes", maxSent)
	}
	return st, nil
}

// corpus returns the scripts of testdata/corpus by file name.
func corpus(t testing.TB) map[string]script {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "corpus", "*.txt"))
	kit.NoError(t, err)
	out := map[string]script{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.NoError(t, err)
		s, err := parseScript(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(file)] = s
	}
	return out
}

// Limits of a run of a script.
const (
	sendTime  = 500 * time.Millisecond // of all that one connection sends; the broker may hold it back
	pauseTime = 20 * time.Millisecond  // of a pause, and of the wait for an answer at the end
)

// play runs s against the broker at addr. It returns when its connections are closed. A connection
// that the broker refuses or closes is no error.
func (s script) play(addr string) {
	conns := map[int]*attacker{}
	var readers sync.WaitGroup
	for _, st := range s {
		a := conns[st.conn]
		if a == nil {
			conn, err := net.DialTimeout("tcp", addr, sendTime)
			if err != nil {
				continue // the bound on connections
			}
			_ = conn.SetWriteDeadline(time.Now().Add(sendTime))
			a = &attacker{TCPConn: conn.(*net.TCPConn), answered: make(chan struct{}, 1)}
			conns[st.conn] = a
			if !s.deaf(st.conn) {
				readers.Go(a.read)
			}
		}
		a.do(st)
	}
	for _, a := range conns {
		a.do(step{op: opPause})
	}
	for _, a := range conns {
		_ = a.Close()
	}
	readers.Wait()
}

func (s script) deaf(conn int) bool {
	return slices.ContainsFunc(s, func(st step) bool { return st.conn == conn && st.op == opDeaf })
}

// attacker is a connection of a script.
type attacker struct {
	*net.TCPConn
	answered chan struct{} // receives after bytes from the broker
}

func (a *attacker) read() {
	r := bufio.NewReader(a)
	for {
		if _, err := r.Discard(1); err != nil {
			return
		}
		_, _ = r.Discard(r.Buffered())
		select {
		case a.answered <- struct{}{}:
		default:
		}
	}
}

func (a *attacker) do(st step) {
	switch st.op {
	case opSend:
		_, _ = io.Copy(a.TCPConn, io.MultiReader(repeated(st.data, st.times)...))
	case opHalf:
		_ = a.CloseWrite()
	case opReset:
		_ = a.SetLinger(0)
		_ = a.Close()
	case opPause:
		select {
		case <-a.answered:
		case <-time.After(pauseTime):
		}
	}
}

// repeated returns readers of data, times over, in pieces that are written at once.
func repeated(data []byte, times int) (out []io.Reader) {
	perPiece := max(1, min(times, (64<<10)/max(1, len(data))))
	piece := bytes.Repeat(data, perPiece)
	for left := times; left > 0; left -= perPiece {
		out = append(out, bytes.NewReader(piece[:len(data)*min(left, perPiece)]))
	}
	return out
}

func TestScriptFormat(t *testing.T) {
	text := "# comment\n\n0 send 10ff\n1 send 00 ff x 3\n0 deaf\n1 half\n2 reset\n0 pause\n"
	s, err := parseScript(text)
	kit.NoError(t, err)
	if want := "0 send 10ff\n1 send 00ff x 3\n0 deaf\n1 half\n2 reset\n0 pause\n"; s.String() != want {
		t.Errorf("parsed as\n%s", s)
	}
	for _, bad := range []string{"0", "x send 00", "64 send 00", "0 dance", "0 send 0", "0 send 00 x 0", "0 send 00 x many", "0 half 00", "0 send 00 x 99999999"} {
		if s, err := parseScript(bad); err == nil {
			t.Errorf("%q is parsed as %v", bad, s)
		}
	}
}
