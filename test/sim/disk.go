package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.etcd.io/bbolt"
)

// disk is where a program keeps its state: a directory for each start, since what a killed program still writes has no
// effect on the next one. World owns it; what mu guards is safe for concurrent use.
type disk struct {
	dir    string // empty: the program keeps nothing
	starts int

	mu     sync.Mutex
	slow   time.Duration // the most that a commit waits before it is written, and again until that is known
	full   bool
	behind bool   // the program may have acknowledged what a full disk has refused
	before []byte // the file before the commit under way; nil: there is none
	acks   map[string]acks
}

// acks are what becomes of the messages with a generation of a work.
type acks struct {
	waiting int  // so many are not acknowledged
	done    bool // one is
}

// stateFile is the file of an agent in its state directory.
const stateFile = "state.db"

// errDead is what becomes of a commit of a program that is killed before.
var errDead = errors.New("the program is dead")

func (d *disk) at(start int) string { return filepath.Join(d.dir, strconv.Itoa(start)) }

// current returns the directory of the program that runs; empty if it has none.
func (d *disk) current() string {
	if d.dir == "" {
		return ""
	}
	return d.at(d.starts)
}

func (d *disk) set(slow time.Duration, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow, d.full = slow, full
}

// fails reports whether something is wrong with the disk.
func (d *disk) fails() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slow > 0 || d.full
}

// slowness returns how long a commit that begins now waits before it is written, and again after that.
func (d *disk) slowness(random *random) (before, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slow == 0 {
		return 0, 0
	}
	return random.upTo(d.slow), random.upTo(d.slow)
}

// commits returns what carries out the commits of the program that runs, i.
func (d *disk) commits(i *incarnation) func(write func() error) error {
	file := filepath.Join(d.current(), stateFile)
	return func(write func() error) error {
		before, after := d.slowness(i.program.world.flaky.random.of("commit" + i.program.name))
		time.Sleep(before)
		if i.dead() {
			return errDead
		}
		err := d.write(file, after > 0, &i.program.world.violations, write)
		if err == nil && after > 0 {
			time.Sleep(after)
		}
		if i.dead() {
			return errDead
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.before = nil
		return err
	}
}

// write writes a commit, unless the disk is full. If it is slow, what the file was before is kept until the commit ends, and nothing that
// the commit adds may be acknowledged yet.
func (d *disk) write(file string, slow bool, v *violations, write func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		d.behind = true
		return syscall.ENOSPC
	}
	if slow {
		before, err := os.ReadFile(file) //nolint:gosec // the test's own
		if err != nil {
			return err
		}
		d.before = before
	}
	err := write()
	if err == nil && slow && !d.behind {
		err = d.checkAcks(file, v)
	}
	d.behind = d.behind && err != nil
	return err
}

// checkAcks reports what was acknowledged although the commit under way has written it first.
func (d *disk) checkAcks(file string, v *violations) error {
	after, err := os.ReadFile(file) //nolint:gosec // the test's own
	if err != nil {
		return err
	}
	old, err := d.specs(d.before)
	if err != nil {
		return err
	}
	written, err := d.specs(after)
	for _, work := range slices.Sorted(maps.Keys(written)) {
		version := versionOf(work, written[work])
		if a := d.acks[version]; old[work] != written[work] && a.done && a.waiting == 0 {
			v.add("the agent of " + filepath.Base(d.dir) + " has acknowledged " + version + " before it is on its disk")
		}
	}
	return err
}

func versionOf(work string, generation any) string {
	return fmt.Sprintf("generation %v of work %s", generation, work)
}

// specs returns the generations of the specs in a state file, by the UIDs of their works.
func (d *disk) specs(image []byte) (map[string]int64, error) {
	file := filepath.Join(d.dir, "copy.db")
	if err := os.WriteFile(file, image, 0o600); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	specs := map[string]int64{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("specs")).ForEach(func(key, value []byte) error {
			var entry struct {
				Generation int64 `json:"generation"`
			}
			_, work, _ := strings.Cut(string(key), "\x00")
			err := json.Unmarshal(value[:len(value)-crc32.Size], &entry)
			specs[work] = entry.Generation
			return err
		})
	})
	return specs, errors.Join(err, db.Close())
}

// delivered notes that the program receives a message. It returns what notes that it acknowledges that.
func (d *disk) delivered(e cloudevents.Event) (acknowledged func()) {
	version := versionOf(fmt.Sprint(e.Extensions()["resourceid"]), e.Extensions()["resourceversion"])
	count := func(waiting int, done bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		a := d.acks[version]
		d.acks[version] = acks{a.waiting + waiting, done && !d.full && !d.behind}
	}
	count(1, false)
	return func() { count(-1, true) }
}

// crashed returns what a crash within a commit leaves of a bbolt file, which was before, and would be after. bbolt writes data
// pages that the meta pages of before do not reach, syncs them, writes one meta page, and syncs that. Until a sync, any of
// the sectors may be on the disk.
func crashed(before, after []byte, random *random) []byte {
	metas := 2 * os.Getpagesize()
	if random.chance(50) { // the data is synced
		image := bytes.Clone(after)
		if random.chance(50) {
			copy(image[:metas], before)
		}
		return image
	}
	const sector = 512
	image := bytes.Clone(before)
	if random.chance(50) { // the file has grown
		image = append(image, make([]byte, len(after)-len(before))...)
	}
	for at := metas; at < len(image); at += sector {
		if random.chance(50) {
			copy(image[at:at+sector], after[at:])
		}
	}
	return image
}

// cut keeps for the next start what is on the disk after a crash now, and says what that cuts: a commit, and what the program holds that a full disk
// has refused.
func (d *disk) cut(w *World, program string) (commit, behind bool) {
	if d.dir == "" {
		return false, false
	}
	if aside, _ := filepath.Glob(filepath.Join(d.current(), "*.damaged-*")); len(aside) > 0 {
		w.violations.add("the agent of " + program + " has set aside what a crash has left on its disk")
	}
	d.restore(d.starts)
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.before
	commit, behind = before != nil, d.behind
	d.before, d.behind, d.acks = nil, false, map[string]acks{}
	if commit {
		if err := d.crash(before, w.flaky.random.of("crash"+program)); err != nil {
			panic(err)
		}
	}
	return commit, behind
}

// crash leaves of the file what a crash does within a commit, before which it was before.
func (d *disk) crash(before []byte, random *random) error {
	file := filepath.Join(d.current(), stateFile)
	after, err := os.ReadFile(file) //nolint:gosec // the test's own
	if err != nil {
		return err
	}
	return os.WriteFile(file, crashed(before, after, random), 0o600)
}

// restore gives the next start what the program had on the disk when it was killed as the from-th time.
func (d *disk) restore(from int) {
	if d.dir == "" {
		return
	}
	synctest.Wait() // nobody writes now
	source := d.at(from)
	d.starts++
	target := d.current()
	err := os.RemoveAll(target)
	if err == nil {
		err = os.CopyFS(target, os.DirFS(source))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
}

// lose has the next start find nothing.
func (d *disk) lose() { d.starts++ }

// slowDisk makes the disk of an agent slow while its works change, and kills it then: most of the times within a commit.
func (w *World) slowDisk() {
	c := w.anyCluster()
	slow, offline := w.random.upTo(5*time.Second), w.random.chance(50)
	if c.agent.running == nil || c.disk.dir == "" || c.disk.fails() {
		return
	}
	w.trace.note(string(c.name), fmt.Sprintf("has a slow disk: each commit takes up to %v", 2*slow))
	c.disk.set(slow, false)
	for i := range w.o.Works {
		if w.random.chance(30) {
			w.change(c, workName(i))
		}
	}
	w.advance(w.random.upTo(2 * slow))
	if offline {
		w.cutOff(c.agent)
	}
	w.kill(c.agent)
	c.disk.set(0, false)
}

// fillDisk has the disk of an agent be full for a while.
func (w *World) fillDisk() {
	c := w.anyCluster()
	if c.disk.dir == "" || c.disk.fails() {
		return
	}
	w.trace.note(string(c.name), "has a full disk")
	c.disk.set(0, true)
	w.later(maxOutage, func() {
		w.trace.note(string(c.name), "has room on its disk again")
		c.disk.set(0, false)
	})
}
