package conformance_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokerchild"
	"github.com/workwire/workwire/test/kit/mqttflood"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

func TestMain(m *testing.M) {
	mqttflood.Main()
	brokerchild.Main(m, config)
}

// Names of configurations of brokers in processes of their own.
const (
	defaults  = ""
	hashed    = "hashed"
	smallDisk = "small"

	smallMemory = "small memory"
)

func config(name string) broker.Config {
	cfg := broker.Config{Users: users()}
	switch name {
	case hashed: // the password is checked with bcrypt, and few connections reach the limit of an address
		cfg.Limits.PendingPerAddress = 300
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			panic(err)
		}
		for i := range cfg.Users {
			cfg.Users[i].Password, cfg.Users[i].PasswordHash = "", string(hash)
		}
	case smallMemory:
		cfg.MaxQueuedMemoryBytes, cfg.MaxTotalMemoryBytes = 2<<20, 8<<20
	case smallDisk:
		cfg.MaxQueuedMessages, cfg.MaxQueuedBytes, cfg.MaxTotalBytes, cfg.MaxPacketSize = 200, 4<<20, 16<<20, 64<<10
	}
	return cfg
}

// child is a broker in a process of its own, with clients that must be served.
type child struct {
	*brokerchild.Process
	*oracle
	t      *testing.T
	dir    string
	name   string
	before brokerchild.Usage
}

func startChild(t *testing.T, name string) *child {
	t.Helper()
	c := &child{t: t, dir: t.TempDir(), name: name}
	c.start()
	t.Cleanup(func() { kit.NoError(t, c.Stop()) })
	return c
}

func (c *child) start() {
	c.t.Helper()
	var err error
	c.Process, err = brokerchild.Start(c.dir, c.name)
	kit.NoError(c.t, err)
	c.oracle = newOracle(c.t, c.Addr)
	c.oracle.served()
	c.before, err = c.Usage()
	kit.NoError(c.t, err)
}

// check fails the test unless the process runs, serves others, and its memory has not grown by more
// than limit MB at any time; then it starts the broker again.
func (c *child) check(limit int) {
	c.t.Helper()
	if err := c.Died(); err != nil {
		c.t.Fatal(err)
	}
	c.oracle.served()
	now, err := c.Usage()
	kit.NoError(c.t, err)
	c.t.Logf("before %+v, now %+v", c.before, now)
	if grown := now.Peak - c.before.Peak; grown > limit {
		c.t.Errorf("the broker's memory has grown by %d MB, want at most %d", grown, limit)
	}
	kit.NoError(c.t, c.Stop())
	c.start()
}

// flood sends data in a row until all is sent or the broker has ended the connection, and returns
// how much it sent. Nothing is read.
func flood(t *testing.T, conn io.Writer, data []byte, times int) (sent int) {
	t.Helper()
	for range times {
		n, err := conn.Write(data)
		sent += n
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Log("the broker holds the sender back")
			}
			return sent
		}
	}
	return sent
}

// memory is the limit of growth in tests of memory, in MB. What they send would take several times as
// much if it were kept; the race detector and the garbage collector need a part of it.
const memory = 500

// TestLengthOfFiveBytes sends a remaining length of five bytes, and then data, before CONNECT and
// after it.
func TestLengthOfFiveBytes(t *testing.T) {
	t.Parallel()
	c := startChild(t, defaults)
	var conns []*mqttraw.Conn
	for range 8 {
		conn := mqttraw.Dial(t, c.Addr)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		conn.Send([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0})
		conns = append(conns, conn)
	}
	data := make([]byte, 1<<20)
	for _, conn := range conns {
		flood(t, conn, data, 100)
	}
	c.check(memory)

	agent := connect(t, c.Addr, as("c1"))
	hub := connect(t, c.Addr, as("hub1")).mustSubscribe(upFilter)
	agent.Send([]byte{0xC0, 0x80, 0x80, 0x80, 0x80, 0})
	flood(t, agent, mqttraw.Publish(0, 0, up("c1"), strings.Repeat("x", 20<<20)), 1)
	if _, err := io.Copy(io.Discard, agent); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open")
	}
	connect(t, c.Addr, as("c2")).mustPublish(up("c2"), "fence")
	hub.mustReceive("fence")
	c.check(memory)
}

// TestPacketsThatEndedTheProcess sends packets and sizes that ended brokers.
func TestPacketsThatEndedTheProcess(t *testing.T) {
	t.Parallel()
	c := startChild(t, defaults)
	agent := connect(t, c.Addr, as("c1"))
	agent.Send([]byte{0x82, 6, 0, 0, 0, 0, 1, 0x24}, mqttraw.Ping)
	agent.ExpectDisconnect(0x81, 0x82)

	// Keys of the database have 32,768 bytes at most.
	for _, size := range []int{257, 32753, 32754, 32755, 65535} {
		long := durable(as("c1"))
		long.ClientID = strings.Repeat("i", size)
		refused(t, c.Addr, false, long.Bytes(), 0x85, 0x95)
	}
	for _, size := range []int{64, 32753, 33000, 65000} {
		for _, flags := range []byte{mqttraw.QoS1, mqttraw.QoS1 | mqttraw.Retain} {
			hub := connect(t, c.Addr, as("hub1"))
			hub.Send(mqttraw.Publish(flags, 1, down(strings.Repeat("c", size)), "x"))
			if p := hub.Next(); p.Type != mqttraw.PUBACK && p.Type != mqttraw.DISCONNECT || p.Code() < 0x80 {
				t.Errorf("a topic with an id of %d bytes: %v", size, p)
			}
			hub.drop()
		}
		will := as("c1")
		will.Will = &mqttraw.Will{Topic: "sources/" + strings.Repeat("s", size) + "/clusters/c1/agentevents", Payload: "x"}
		refused(t, c.Addr, true, will.Bytes(), 0x81, 0x82, 0x87, 0x90)
	}
	// The longest of all that is accepted is stored, and the store starts again.
	longest := durable(as("c1"))
	longest.ClientID = strings.Repeat("é", 128)
	longest.Will = &mqttraw.Will{Topic: "sources/" + strings.Repeat("s", 63) + "/clusters/c1/agentevents", Payload: strings.Repeat("w", 60_000)}
	connect(t, c.Addr, longest).mustSubscribe("sources/"+strings.Repeat("s", 63)+"/clusters/c1/sourceevents", downFilter("c1")).drop()
	connect(t, c.Addr, as("hub1")).mustPublish(down("c1"), "kept")
	c.check(memory)
	longest.Will = nil
	again := connect(t, c.Addr, longest)
	if !again.connack.Present {
		t.Error("the session is lost")
	}
	again.mustReceive("kept")
}

// TestManyProperties sends messages of empty user properties to the session of an absent client: what
// they take in memory counts.
func TestManyProperties(t *testing.T) {
	t.Parallel()
	c := startChild(t, defaults)
	connect(t, c.Addr, durable(as("c1"))).mustSubscribe(downFilter("c1")).drop()
	props := bytes.Repeat(mqttraw.User("", ""), 200_000)
	for i := range 30 {
		hub := connect(t, c.Addr, as("hub1"))
		hub.Send(mqttraw.Publish(mqttraw.QoS1, uint16(i+1), down("c1"), "x", props))
		if p := hub.Next(); p.Type == mqttraw.PUBACK && p.Code() < 0x80 && i == 0 {
			t.Logf("accepted: %v", p.Code())
		}
		hub.drop()
	}
	c.check(memory)
}

// TestManyLevels subscribes to a filter of 65,000 levels, whose handling once took seconds under a
// lock. It is refused by its length, before any other cost.
func TestManyLevels(t *testing.T) {
	t.Parallel()
	c := startChild(t, defaults)
	for _, filter := range []string{"$SYS/" + strings.Repeat("/", 65_000), "$SYS/" + strings.Repeat("+/", 30_000) + "#", strings.Repeat("/", 65_535)} {
		monitor := connect(t, c.Addr, as("watch"))
		packet := mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: filter})
		monitor.Send(bytes.Repeat(packet, 10))
		for range 10 {
			if p := monitor.Next(); p.Code() < 0x80 {
				t.Fatalf("a filter of 65,000 levels: %v", p)
			} else if p.Type == mqttraw.DISCONNECT {
				break
			}
		}
		monitor.drop()
	}
	c.check(memory)
}

// TestManyRefusedFilters sends filters that are refused: they are not indexed, and the log does not
// have a line for each.
func TestManyRefusedFilters(t *testing.T) {
	t.Parallel()
	c := startChild(t, defaults)
	const each, packets = 2000, 5
	agent := connect(t, c.Addr, as("c1"))
	for i := range packets {
		var filters []mqttraw.Filter
		for j := range each {
			filters = append(filters, mqttraw.Filter{Topic: fmt.Sprintf("refused/%d/%d/%s", i, j, strings.Repeat("x", 150))})
		}
		packet := mqttraw.Subscribe(1, nil, filters...)
		agent.Send(packet)
		p := agent.Next()
		if p.Type == mqttraw.DISCONNECT { // a bound on filters of a packet
			agent = connect(t, c.Addr, as("c1"))
			continue
		}
		for _, code := range p.Codes {
			if code < 0x80 {
				t.Fatalf("a filter is granted: %x", code)
			}
		}
	}
	agent.ping()
	log, err := os.ReadFile(c.Log)
	kit.NoError(t, err)
	if lines := bytes.Count(log, []byte{'\n'}); lines > each*packets/10 || len(log) > 4<<20 {
		t.Errorf("%d lines and %d bytes of log for %d refused filters", lines, len(log), each*packets)
	}
	c.check(memory)
}

// TestWrongPasswords checks that a client at another address logs in while an attacker waits for the
// answers to many wrong passwords: not after all of them.
func TestWrongPasswords(t *testing.T) {
	t.Parallel()
	c := startChild(t, hashed)
	const attackers = 100
	wrong := as("c1")
	wrong.Password = "wrong"
	answered := make(chan struct{}, attackers)
	for range attackers {
		conn := mqttraw.Dial(t, c.Addr)
		conn.Send(wrong.Bytes())
		go func() {
			if _, err := conn.Reader.ReadByte(); err == nil {
				answered <- struct{}{}
			}
		}()
	}
	before := len(answered)
	login := as("c2")
	conn := mqttraw.DialFrom(t, "127.0.0.2", c.Addr)
	conn.Send(login.Bytes())
	if connack := conn.Expect(mqttraw.CONNACK); connack.Code() != 0 {
		t.Fatalf("the right password: %v", connack)
	}
	if during := len(answered) - before; during > attackers/2 {
		t.Errorf("%d of %d wrong passwords were checked before the right one", during, attackers)
	}
	c.check(memory)
}

// TestFloodOfMessages checks that an agent that floods its hub with messages loses its own: the hub's
// session goes on, and receives what others publish.
func TestFloodOfMessages(t *testing.T) {
	t.Parallel()
	for _, qos := range []byte{0, mqttraw.QoS1} {
		for _, absent := range []bool{false, true} {
			t.Run(fmt.Sprintf("QoS %d, hub absent %v", qos>>1, absent), func(t *testing.T) {
				c := startChild(t, smallDisk)
				hub := connect(t, c.Addr, durable(as("hub1"))).mustSubscribe(upFilter)
				if absent {
					hub.leave()
				}
				agent := connect(t, c.Addr, as("c1"))
				_ = agent.SetDeadline(time.Now().Add(5 * time.Second)) // the broker may hold the agent back
				if qos == 0 {
					flood(t, agent, mqttraw.Publish(0, 0, up("c1"), strings.Repeat("x", 10_000)), 1500)
				}
				for id := uint16(1); qos > 0 && id <= 300; id++ {
					agent.Send(mqttraw.Publish(qos, id, up("c1"), strings.Repeat("x", 10_000)))
					if _, err := mqttraw.Read(agent.Reader); err != nil {
						break
					}
				}
				agent.drop()
				connect(t, c.Addr, as("c2")).mustPublish(up("c2"), "of another")
				if absent {
					hub = connect(t, c.Addr, durable(as("hub1")))
					if !hub.connack.Present {
						t.Fatal("the hub's session was ended")
					}
				}
				for p := hub.receive(); p.Payload != "of another"; p = hub.receive() {
				}
				c.check(memory)
			})
		}
	}
}

// TestDeafWithoutADisk lets clients whose sessions end with their connections read nothing: what is
// kept for them in memory only is bounded, for each and for all, and others are served.
func TestDeafWithoutADisk(t *testing.T) {
	t.Parallel()
	c := startChild(t, smallMemory)
	hub := connect(t, c.Addr, as("hub1"))
	var deaf []*client
	for i := range 20 {
		agent := as("c1")
		agent.ClientID = fmt.Sprint("deaf-", i)
		deaf = append(deaf, connect(t, c.Addr, agent).mustSubscribe(downFilter("c1")))
	}
	for range 200 { // 200 MB if all were kept
		hub.Send(mqttraw.Publish(mqttraw.QoS1, hub.id(), down("c1"), strings.Repeat("x", 50_000)))
		hub.Expect(mqttraw.PUBACK)
	}
	for _, agent := range deaf {
		var err error
		for err == nil { // what was sent before, and a DISCONNECT if there was room for it
			_, err = mqttraw.Read(agent.Reader)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the session of a client that does not read goes on")
		}
	}
	c.check(memory / 3)
}

// TestManySessions opens live sessions of one identity: there is a bound, and others connect.
func TestManySessions(t *testing.T) {
	t.Parallel()
	c := startChild(t, defaults)
	const count = 400
	var conns []*mqttraw.Conn
	for i := range count {
		connecting := durable(as("c1"))
		connecting.ClientID = fmt.Sprint("session-", i)
		conn := mqttraw.Dial(t, c.Addr)
		conn.Send(connecting.Bytes())
		if p, err := mqttraw.Read(conn.Reader); err == nil && p.Type == mqttraw.CONNACK && p.Code() == 0 {
			conns = append(conns, conn)
		}
	}
	alive := 0
	for _, conn := range conns {
		conn.Send(mqttraw.Ping)
		if p, err := mqttraw.Read(conn.Reader); err == nil && p.Type == mqttraw.PINGRESP {
			alive++
		}
	}
	if alive == 0 || alive > count/2 {
		t.Errorf("%d of %d sessions of one identity are connected", alive, count)
	}
	connect(t, c.Addr, as("c2")).ping()
	c.check(memory)
}
