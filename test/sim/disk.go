package sim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing/synctest"
)

// disk is where a program keeps its state: a directory for each start, since what a killed program still writes has no
// effect on the next one. World owns it.
type disk struct {
	dir    string // empty: the program keeps nothing
	starts int
}

func (d *disk) at(start int) string { return filepath.Join(d.dir, strconv.Itoa(start)) }

// current returns the directory of the program that runs; empty if it has none.
func (d *disk) current() string {
	if d.dir == "" {
		return ""
	}
	return d.at(d.starts)
}

// cut keeps for the next start what is on the disk now.
func (d *disk) cut() { d.restore(d.starts) }

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
