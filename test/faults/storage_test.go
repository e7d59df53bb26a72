package faults

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// Names of faults that need a disk, or an agent with a state directory.
const (
	brokerDisk = "fill the broker's disk"
	agentDisk  = "fill the agent's disk"
	agentFile  = "restore an old file of the agent"
)

// storageFaults fill disks, restore old files, and stop API servers. Each makes the same number of
// changes wherever it runs, so that a seed decides what comes next.
var storageFaults = []fault{
	{name: brokerDisk, run: func(w *world) { w.fill(w.brokerDisk) }},
	{name: agentDisk, run: func(w *world) { w.fill(w.agentDisk) }},
	{name: "restore an old file of the broker", run: func(w *world) {
		file := filepath.Join(w.Dir, "broker", "broker.db")
		kit.NoError(w, w.Broker.Stop())
		old := w.read(file)
		w.startBroker()
		w.during(moment, 6)
		kit.NoError(w, w.Broker.Process.Kill())
		w.write(file, old)
		w.startBroker()
		w.during(0, 4)
	}},
	{name: agentFile, run: func(w *world) {
		file := filepath.Join(w.stateDir, "state.db")
		w.stopAgent()
		old := w.read(file)
		w.startAgent()
		w.during(moment, 6)
		kit.NoError(w, w.agent.Kill())
		w.write(file, old)
		w.mayHold = true // works that were deleted meanwhile
		w.startAgent()
		w.during(0, 4)
	}},
	{name: "restore the hub's API from a snapshot", soak: true, run: func(w *world) {
		bump := uint64(w.random.IntN(2)) * 1_000_000_000
		w.during(0, 2)
		b := w.snapshotHub()
		w.during(time.Second, 6)
		w.restoreHub(b, bump)
		w.during(time.Second, 2)
	}},
	{name: "kill both API servers", soak: true, run: func(w *world) {
		w.during(0, 4)
		w.bothPlanes(func(p *controlplane.Plane) error {
			if err := p.Kill(); err != nil {
				return err
			}
			return p.Continue()
		})
		w.during(time.Second, 4)
	}},
	{name: "freeze both API servers for 5 s", soak: true, run: func(w *world) {
		w.during(0, 4)
		w.bothPlanes(func(p *controlplane.Plane) error {
			thaw, err := p.Freeze()
			if err != nil {
				return err
			}
			time.Sleep(5 * time.Second)
			return thaw()
		})
		w.during(time.Second, 4)
	}},
	{name: "the agent is away for longer than its keepAlive", soak: true, run: func(w *world) {
		kit.NoError(w, w.agent.Kill())
		w.during(12*time.Second, 8)
		w.startAgent()
	}},
}

// fill leaves no room on a disk while works change. Where there is no disk, works only change.
func (w *world) fill(disk *kit.Disk) {
	w.Helper()
	free := func() { w.Log("no disk that can be filled") }
	if disk != nil {
		free = disk.Fill()
	}
	w.during(time.Second, 8)
	free()
	w.during(moment, 2)
}

// bothPlanes calls do for both API servers at the same time.
func (w *world) bothPlanes(do func(*controlplane.Plane) error) {
	w.Helper()
	var group errgroup.Group
	for _, plane := range []*controlplane.Plane{w.Hub, spokePlane} {
		group.Go(func() error { return do(plane) })
	}
	kit.NoError(w, group.Wait())
}

// read returns the content of a file, nil for the file of an agent without a state directory.
func (w *world) read(file string) []byte {
	w.Helper()
	text, err := os.ReadFile(file)
	if !os.IsNotExist(err) {
		kit.NoError(w, err)
	}
	return text
}

// write replaces a file as a restore does; nil leaves it alone.
func (w *world) write(file string, text []byte) {
	w.Helper()
	if text != nil {
		kit.NoError(w, os.WriteFile(file, text, 0o600))
	}
}
