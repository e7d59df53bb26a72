package leader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

const (
	// noteName is the file in which the processes of a replica note their identities.
	noteName = "candidate.json"
	// maxNoted is the number of identities that are kept: those of processes that ended before they
	// led, and of the one that led before them.
	maxNoted = 8
	// maxNote is the size of a file that is read, in bytes.
	maxNote = 64 << 10
)

// ErrEnlisted says that another process has enlisted in the directory and has not ended.
var ErrEnlisted = errors.New("another process uses the directory")

// note is what a directory holds of the processes that enlisted in it, as JSON.
type note struct {
	place
	// Identities of the processes, the newest last.
	Identities []string `json:"identities"`
}

// place is where a lock counts: a file as one running kernel knows it. While a process holds the
// lock of the file, no other process of that kernel has it, and no other file has the same place.
// The note in a copy of the file, on a volume that moved to another node, or from before a restart
// of the machine has another place than the file that it is in.
type place struct {
	Boot   string `json:"boot"` // id of the kernel's run
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// ended returns the identities in data, the content of a file at here, whose lock this process
// holds: their processes have ended, since each of them held that lock until its end. It returns
// none if the identities were noted at another place.
func ended(data []byte, here place) []string {
	var noted note
	if json.Unmarshal(data, &noted) != nil || noted.place != here {
		return nil
	}
	noted.Identities = slices.DeleteFunc(noted.Identities, func(identity string) bool { return identity == "" })
	return noted.Identities[max(0, len(noted.Identities)-maxNoted):]
}

// Enlist notes identity, which is unique among all processes, in dir, and returns the identities of
// the processes that enlisted there before, in the form of [Options].Predecessors: they have
// certainly ended. Keep enlisted open until the process ends.
//
// The error wraps ErrEnlisted if another process of this machine has dir. Identities of processes
// on other machines, or before a restart of this one, are not returned, nor any from file systems
// that may be shared between machines: their processes may live.
func Enlist(dir, identity string) (predecessors []string, enlisted io.Closer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("enlist in %s: %w", dir, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, noteName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("enlist: %w", err)
	}
	predecessors, err = enlist(file, identity)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("enlist in %s: %w", file.Name(), err), file.Close())
	}
	return predecessors, file, nil
}

// enlist locks file and adds identity to it.
func enlist(file *os.File, identity string) ([]string, error) {
	here, err := placeOf(file)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrEnlisted
		}
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxNote))
	if err != nil {
		return nil, err
	}
	predecessors := ended(data, here)
	data, err = json.Marshal(note{place: here, Identities: append(slices.Clone(predecessors), identity)})
	if err != nil {
		return nil, err
	}
	// In place: the file keeps its place. If it cannot be written, the next process does not know
	// this one and waits for its Lease.
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt(data, 0)
	}
	if err = errors.Join(err, file.Sync()); err != nil && len(predecessors) == 0 {
		return nil, err
	}
	return predecessors, nil
}
