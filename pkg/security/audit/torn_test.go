package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// narrow is a disk that has room for so many bytes at first.
type narrow struct {
	bytes.Buffer
	room []int // of the first writes
}

func (n *narrow) Write(p []byte) (int, error) {
	if len(n.room) == 0 {
		return n.Buffer.Write(p)
	}
	room := n.room[0]
	n.room = n.room[1:]
	_, _ = n.Buffer.Write(p[:room])
	return room, errors.New("the disk is full")
}

func (n *narrow) Close() error { return nil }

// TestTorn: a record that was cut off takes no other with it, neither in this program nor in the next one.
func TestTorn(t *testing.T) {
	for name, room := range map[string][]int{"once": {10}, "then nothing": {10, 0}, "then only the end of its line": {10, 1}, "twice": {10, 5}} {
		disk := &narrow{room: room}
		path := filepath.Join(t.TempDir(), "audit.log")
		log, err := Open(Config{Path: path})
		kit.NoError(t, err)
		log.file = disk
		for range len(room) + 2 {
			log.Write(Record{Event: Apply})
		}
		checkTorn(t, name, disk.Bytes(), min(len(room), 2), 2)

		kit.NoError(t, os.WriteFile(path, disk.Bytes()[:10], 0o600))
		log, err = Open(Config{Path: path})
		kit.NoError(t, err)
		log.Write(Record{Event: Apply})
		written, err := os.ReadFile(path)
		kit.NoError(t, err)
		checkTorn(t, name+", next program", written, 1, 1)
	}
}

// checkTorn checks that a log has at most so many lines that are no records, all of them first, and then so many records.
func checkTorn(t *testing.T, name string, log []byte, torn, records int) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n"))
	if len(lines) < records+1 || len(lines) > records+torn {
		t.Fatalf("%s: %q", name, log)
	}
	for _, line := range lines[len(lines)-records:] {
		if !json.Valid(line) {
			t.Errorf("%s: %q", name, log)
		}
	}
}
