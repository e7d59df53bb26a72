package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/test/kit"
)

// TestDamagedDatabase kills a broker amid writes and damages its database in random ways. The
// broker always starts: with the session and every acknowledged message, or without the session and
// with the damaged file beside a new one.
func TestDamagedDatabase(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	p := startBroker(t, writeConfig(t, dir, "127.0.0.1:0"))
	agent, _ := connect(t, p.addr, "c1")
	agent.Subscribe(filter)
	_ = agent.Close()
	acked, next := map[int]bool{}, 0
	publishUntilKilled(t, p, acked, &next)
	whole, err := os.ReadFile(filepath.Join(dir, "data", "broker.db"))
	kit.NoError(t, err)

	for round := range 12 {
		data := append([]byte(nil), whole...)
		switch {
		case round == 0: // as it was killed
		case round%4 == 0:
			data = data[:random.IntN(len(data))]
		default:
			for range round * 3 {
				data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
			}
		}
		dir := t.TempDir()
		config, path := writeConfig(t, dir, "127.0.0.1:0"), filepath.Join(dir, "data", "broker.db")
		kit.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		kit.NoError(t, os.WriteFile(path, data, 0o600))
		p := startBroker(t, config)
		agent, connack := connect(t, p.addr, "c1")
		saved, err := filepath.Glob(path + ".damaged-*")
		kit.NoError(t, err)
		if connack.SessionPresent != (len(saved) == 0) || round == 0 && len(saved) > 0 {
			t.Fatalf("round %d: session present %v, damaged files %v", round, connack.SessionPresent, saved)
		}
		if connack.SessionPresent {
			receiveAll(t, agent, acked)
		} else { // the client resyncs
			agent.Subscribe(filter)
			source, _ := connect(t, p.addr, "hub1")
			kit.NoError(t, source.Publish(1, topic, []byte("again")))
			if m, ok := agent.Next().(*packets.Publish); !ok || string(m.Payload) != "again" {
				t.Errorf("round %d: the agent received %v", round, m)
			}
		}
		kit.NoError(t, p.cmd.Process.Kill())
	}
}

// publishPadded publishes numbered messages of 8 KiB from next on, until count are acknowledged or
// no acknowledgement comes for patience, and returns the next number.
func publishPadded(t *testing.T, p *process, acked map[int]bool, next, count int, patience time.Duration) int {
	t.Helper()
	source, _ := connect(t, p.addr, "hub1")
	defer func() { _ = source.Close() }()
	padding := strings.Repeat(" ", 8<<10)
	sent, first := next, next
	for next-first < count {
		for ; sent-next < 100; sent++ {
			kit.NoError(t, source.Publish(uint16(sent%60000+1), topic, []byte(fmt.Sprint(sent, padding))))
		}
		_ = source.SetReadDeadline(time.Now().Add(patience))
		packet, err := packets.ReadPacket(source.Reader)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		kit.NoError(t, err)
		if ack, ok := packet.Content.(*packets.Puback); !ok || ack.ReasonCode != 0 || int(ack.PacketID) != next%60000+1 {
			t.Fatalf("instead of the acknowledgement of %d came %v", next, packet.Content)
		}
		acked[next] = true
		next++
	}
	return sent // those without an acknowledgement may or may not be kept
}

// TestFullDisk fills the broker's disk while it receives messages for a disconnected agent, and
// kills it then. The broker acknowledges nothing that it cannot store, goes on, starts on the full
// disk, and delivers every acknowledged message, which makes room for more.
func TestFullDisk(t *testing.T) {
	disk := kit.NewDisk(t, 16<<20)
	config := writeConfig(t, disk.Dir, "127.0.0.1:0")
	p := startBroker(t, config)
	agent, _ := connect(t, p.addr, "c1")
	agent.Subscribe(filter)
	_ = agent.Close()

	acked := map[int]bool{}
	next := publishPadded(t, p, acked, 0, 300, kit.Patience)
	if len(acked) != 300 {
		t.Fatalf("%d messages are acknowledged on an empty disk, want 300", len(acked))
	}
	free := disk.Fill()
	next = publishPadded(t, p, acked, next, 1000, 2*time.Second)
	if n := len(acked); n == 1300 {
		t.Fatal("every message is acknowledged on a full disk")
	}
	kit.NoError(t, p.cmd.Process.Signal(syscall.Signal(0))) // it is alive
	kit.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()

	p = startBroker(t, config)
	agent, connack := connect(t, p.addr, "c1")
	if !connack.SessionPresent {
		t.Fatal("the session is lost")
	}
	// As clients do at each connect; messages may come before the answer.
	agent.Send(&packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: filter, QoS: 1}}})
	receiveAll(t, agent, acked)
	_ = agent.Close()
	before := len(acked)
	free()
	publishPadded(t, p, acked, next+1000, 100, kit.Patience)
	if len(acked) != before+100 {
		t.Errorf("%d of 100 messages are acknowledged when there is room", len(acked)-before)
	}
}
