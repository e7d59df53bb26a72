package limits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
)

func TestAdmit(t *testing.T) {
	c := Config{Connections: 100, Pending: 10, PendingPerAddress: 5}
	for name, test := range map[string]struct {
		o    occupancy
		from place
		err  error
	}{
		"empty":                                   {occupancy{}, free, nil},
		"the address is full":                     {occupancy{connections: 5, pending: 5, ofAddress: 5}, free, ErrPendingAddress},
		"a silent one of the address makes room":  {occupancy{connections: 5, pending: 5, ofAddress: 5, idle: 1}, ofAddress, ErrPendingAddress},
		"one with few replaces one with many":     {occupancy{connections: 10, pending: 10, ofAddress: 1, idle: 1, largest: 5}, ofLargest, ErrPending},
		"one of the largest replaces nobody":      {occupancy{connections: 10, pending: 10, ofAddress: 3, largest: 3}, free, ErrPending},
		"but a silent one of its own":             {occupancy{connections: 10, pending: 10, ofAddress: 3, idle: 3, largest: 3}, ofAddress, ErrPending},
		"pending ones make room when all is full": {occupancy{connections: 100, pending: 5, ofAddress: 0, largest: 5}, ofLargest, ErrPending},
		"logged in ones stay when all is full":    {occupancy{connections: 100, pending: 1, ofAddress: 0, largest: 1}, free, ErrConnections},
		"its own silent one when all is full":     {occupancy{connections: 100, pending: 1, ofAddress: 1, idle: 1, largest: 1}, ofAddress, ErrConnections},
	} {
		from, err := admit(c, test.o)
		if from != test.from || !errors.Is(err, test.err) {
			t.Errorf("%s: got %v, %v, want %v, %v", name, from, err, test.from, test.err)
		}
	}
}

func from(address string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))
}

func TestAddressOf(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:db8::1:2:3:4": "2001:db8::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := addressOf(from(given)); got != want {
			t.Errorf("%s: got %s, want %s", given, got, want)
		}
	}
	if got := addressOf(&net.UnixAddr{Net: "unix", Name: "@"}); got != "unix" {
		t.Errorf("a socket: got %s", got)
	}
}

// TestAccept: an attacker's address that holds all pending connections gives up its oldest, and
// everything is given back at the end.
func TestAccept(t *testing.T) {
	l := New(Config{Connections: 100, Pending: 4, PendingPerAddress: 4, ConnectionsPerIdentity: 2})
	var evicted []int
	var open []*Connection
	accept := func(address string) (*Connection, error) {
		i := len(open)
		c, err := l.Accept(from(address), func() { evicted = append(evicted, i) })
		if c != nil {
			open = append(open, c)
		}
		return c, err
	}
	for range 4 {
		c, err := accept("10.0.0.1")
		kit.NoError(t, err)
		c.Busy()
	}
	if _, err := accept("10.0.0.1"); !errors.Is(err, ErrPendingAddress) {
		t.Errorf("beyond the limit of the address: %v", err)
	}
	if got := l.Stats(); got.Pending != 4 || got.Refused[ErrPendingAddress] != 1 {
		t.Fatalf("of the attacker: %+v", got)
	}
	c1 := acl.Identity{Role: acl.Agent, ID: "c1"}
	for i := range 3 {
		c, err := accept("10.0.0.2")
		kit.NoError(t, err)
		want := error(nil)
		if i == 2 {
			want = ErrIdentity
		}
		if err := c.LogIn(c1); !errors.Is(err, want) {
			t.Errorf("login %d: %v, want %v", i, err, want)
		}
	}
	if fmt.Sprint(evicted) != "[0]" {
		t.Errorf("evicted %v, want the oldest of the attacker alone: logged in ones are not pending", evicted)
	}
	if err := open[0].LogIn(c1); !errors.Is(err, ErrPending) {
		t.Errorf("login of an evicted one: %v", err)
	}
	for _, c := range open {
		c.Close()
		c.Close()
	}
	if got := l.Stats(); got.Connections != 0 || got.Pending != 0 || len(l.addresses) != 0 || len(l.identities) != 0 {
		t.Errorf("at the end: %+v, %v, %v", got, l.addresses, l.identities)
	}
}

// TestSilentOnesMakeRoom: at an address with too many connections, a new one takes the place of the one
// whose client has been silent the longest, and of none that the broker owes an answer.
func TestSilentOnesMakeRoom(t *testing.T) {
	l := New(Config{PendingPerAddress: 3})
	var evicted []string
	accept := func(name string) *Connection {
		c, err := l.Accept(from("10.0.0.1"), func() { evicted = append(evicted, name) })
		kit.NoError(t, err)
		return c
	}
	logsIn, silent, sendsAgain := accept("logs in"), accept("silent"), accept("sends again")
	logsIn.Busy()
	sendsAgain.Busy()
	sendsAgain.Idle()
	accept("first") // for silent
	accept("second")
	accept("third") // for first, the older of the two
	if fmt.Sprint(evicted) != "[silent sends again first]" {
		t.Errorf("evicted %v", evicted)
	}
	kit.NoError(t, logsIn.LogIn(acl.Identity{Role: acl.Agent, ID: "c1"}))
	silent.Busy() // has no effect
	silent.Close()
	if got := l.Stats(); got.Pending != 2 || got.Connections != 3 || got.Refused[ErrPendingAddress] != 3 {
		t.Errorf("%+v", got)
	}
}

func TestTake(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	rate := Rate{MessagesPerSecond: 10, BytesPerSecond: 1000}
	for name, test := range map[string]struct {
		sizes []int // sent at once
		after time.Duration
		want  time.Duration // the wait after the last one, if it is sent that much later
	}{
		"within the burst":          {sizes: []int{1, 1, 1}},
		"all of the burst":          {sizes: []int{250}},
		"bytes":                     {sizes: []int{250, 500}, want: 500 * time.Millisecond},
		"a pause pays it back":      {sizes: []int{250, 250}, after: 250 * time.Millisecond},
		"messages":                  {sizes: make([]int, LoginMessages+1), want: 100 * time.Millisecond},
		"a larger one than a burst": {sizes: []int{3250}, want: 3 * time.Second},
		"a clock that is set back":  {sizes: []int{250, 500}, after: -time.Hour, want: 500 * time.Millisecond},
	} {
		now := start
		l := newLimiter(Config{Source: rate}, func() time.Time { return now })
		var wait time.Duration
		for i, size := range test.sizes {
			if i > 0 && i == len(test.sizes)-1 {
				now = now.Add(test.after)
			}
			wait = l.Take(acl.Identity{Role: acl.Source, ID: "hub1"}, 1, size)
		}
		if (wait - test.want).Abs() > time.Microsecond {
			t.Errorf("%s: waits %v, want %v", name, wait, test.want)
		}
	}
}

// TestTakeShares: all connections of an identity share its rate, other identities do not wait, and a changed rate counts at once.
func TestTakeShares(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLimiter(Config{Agent: Rate{MessagesPerSecond: 1}}, func() time.Time { return now })
	c1, c2 := acl.Identity{Role: acl.Agent, ID: "c1"}, acl.Identity{Role: acl.Agent, ID: "c2"}
	for i, want := range append(make([]time.Duration, LoginMessages), time.Second, 2*time.Second) {
		if got := l.Take(c1, 1, 10); got != want {
			t.Errorf("message %d: waits %v, want %v", i, got, want)
		}
	}
	if got := l.Take(c2, 1, 10); got != 0 {
		t.Errorf("the other identity waits %v", got)
	}
	if got := l.Take(acl.Identity{Role: acl.Source, ID: "c1"}, 1, 10); got != 0 {
		t.Errorf("the source waits %v", got)
	}
	if s := l.Stats(); s.Throttled != 2 || s.ThrottledTime != 3*time.Second {
		t.Errorf("%d waits of %v", s.Throttled, s.ThrottledTime)
	}
	l.Configure(Config{Agent: Rate{MessagesPerSecond: 1}, Connections: 1})
	if got := l.Take(c1, 1, 10); got != 3*time.Second {
		t.Errorf("after another limit has changed: waits %v", got)
	}
	l.Configure(Config{Agent: Rate{MessagesPerSecond: 10}})
	for i, want := range append(make([]time.Duration, LoginMessages), 100*time.Millisecond) {
		if got := l.Take(c1, 1, 10); got != want {
			t.Errorf("message %d at another rate: waits %v, want %v", i, got, want)
		}
	}
}

// TestCost: a large packet of an agent counts more than its size, so that few of them fit in a second.
func TestCost(t *testing.T) {
	for _, test := range []struct {
		role       acl.Role
		size, want int
	}{
		{acl.Agent, 2 << 10, 2 << 10},
		{acl.Agent, 64 << 10, 64 << 10},
		{acl.Agent, 64<<10 + 1, 64<<10 + 16},
		{acl.Agent, 1 << 20, 64<<10 + 15<<20},
		{acl.Source, 1 << 20, 1 << 20},
	} {
		if got := (Config{}).cost(acl.Identity{Role: test.role, ID: "c1"}, test.size); got != test.want {
			t.Errorf("%v, %d bytes: counts %d, want %d", test.role, test.size, got, test.want)
		}
	}
	now := time.Unix(1_000_000, 0)
	l, slowest := newLimiter(Config{}, func() time.Time { return now }), time.Duration(0)
	for range 10 {
		slowest = max(slowest, l.Take(acl.Identity{Role: acl.Agent, ID: "c1"}, 1, 900<<10))
	}
	if slowest < 10*time.Second {
		t.Errorf("10 packets of 900 KB wait %v, want more than 10s", slowest)
	}
}

// TestHandshakes: addresses take turns, and one that gives up leaves its place to others.
func TestHandshakes(t *testing.T) {
	l := New(Config{Handshakes: 1})
	kit.NoError(t, l.EnterHandshake(t.Context(), "busy"))
	var mu sync.Mutex
	var order []string
	var group sync.WaitGroup
	waiting := 0
	enter := func(address string) {
		group.Go(func() {
			if l.EnterHandshake(t.Context(), address) == nil {
				mu.Lock()
				order = append(order, address)
				mu.Unlock()
				l.LeaveHandshake()
			}
		})
		waiting++
		kit.True(t, "the handshake to wait", func() bool { return l.Stats().Handshakes == waiting })
	}
	for _, address := range []string{"busy", "busy", "busy", "calm"} {
		enter(address)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, address := range []string{"busy", "gone"} {
		if err := l.EnterHandshake(ctx, address); !errors.Is(err, context.Canceled) {
			t.Errorf("a handshake without time of %s: %v", address, err)
		}
	}
	l.LeaveHandshake()
	group.Wait()
	if fmt.Sprint(order) != "[busy calm busy busy]" {
		t.Errorf("the order is %v", order)
	}
	if h := &l.handshakes; h.running != 0 || h.waiting.Len() != 0 {
		t.Errorf("at the end %d run, %v wait", h.running, h.waiting)
	}
}

// TestAuthenticate: 90 checks of one address wait for one another, and a check of another address
// begins after at most one of them.
func TestAuthenticate(t *testing.T) {
	l := New(Config{PasswordChecks: 1})
	var order []string
	release, begun := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	check := func(address string, right bool) {
		wg.Go(func() {
			_ = l.Authenticate(t.Context(), address, "user", func() bool {
				if address == "first" {
					close(begun)
					<-release
				}
				order = append(order, address) // one at a time
				return right
			})
		})
	}
	waiting := func(n int) {
		kit.True(t, "checks to wait", func() bool { return l.Stats().PasswordWaiting == n })
	}
	check("first", true)
	<-begun
	for range 90 {
		check("attacker", false)
	}
	waiting(90)
	check("agent", true)
	waiting(91)
	close(release)
	wg.Wait()
	if !slices.Contains(order[1:3], "agent") || len(order) != 92 {
		t.Errorf("%d checks, the first ones %v, want the agent among the first three", len(order), order[:4])
	}
	if s := l.Stats(); s.PasswordChecks != 92 || s.PasswordWaiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestAuthenticateGivesUp: a check whose client has gone does not run and holds no place.
func TestAuthenticateGivesUp(t *testing.T) {
	l := New(Config{PasswordChecks: 1})
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Authenticate(t.Context(), "a", "user", func() bool {
		done := make(chan error)
		go func() {
			done <- l.Authenticate(ctx, "b", "user", func() bool { t.Error("the check ran"); return true })
		}()
		kit.True(t, "the check to wait", func() bool { return l.Stats().PasswordWaiting == 1 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		return true
	})
	kit.NoError(t, err)
	if l.passwords.running != 0 || l.passwords.waiting.Len() != 0 {
		t.Errorf("at the end: %+v", &l.passwords)
	}
}

// TestWrongPasswords: however many wrong passwords come, their checks use a tenth of the time, and neither
// another address nor another user of theirs waits for all of them.
func TestWrongPasswords(t *testing.T) { synctest.Test(t, wrongPasswords) }

func wrongPasswords(t *testing.T) {
	const cost = 5 * time.Millisecond
	l := New(Config{PasswordChecks: 1})
	ctx, stop := context.WithCancel(t.Context())
	var used atomic.Int64
	check := func(right bool) func() bool {
		return func() bool {
			<-time.After(cost)
			used.Add(int64(cost))
			return right
		}
	}
	var attackers sync.WaitGroup
	for i := range 50 {
		attackers.Go(func() {
			for ctx.Err() == nil {
				_ = l.Authenticate(ctx, "attacker", fmt.Sprintf("c%d", i%3), check(false))
			}
		})
	}
	failed := func() int {
		l.passwords.mu.Lock()
		defer l.passwords.mu.Unlock()
		if f := l.passwords.failed["attacker"]; f != nil {
			return len(f.users)
		}
		return 0
	}
	kit.True(t, "the users to be suspect", func() bool { return failed() == 3 })
	start := time.Now()
	used.Store(0)
	for i, address := range []string{"other", "attacker"} {
		before := l.Stats().PasswordChecks
		kit.NoError(t, l.Authenticate(t.Context(), address, "c9", check(true)))
		if after := l.Stats().PasswordChecks - before; after > 4 { // one may run, one may be due, and its own; the count is behind
			t.Errorf("login %d came after %d other checks", i, after-1)
		}
	}
	own := 2 * cost
	kit.True(t, "checks of wrong passwords", func() bool { return time.Duration(used.Load()) > 100*cost })
	// Two checks may have begun before, and the last one has no pause yet.
	if took, most := time.Duration(used.Load()), time.Since(start)/suspectPart+own+5*cost; took > most {
		t.Errorf("checks took %v of %v", took, time.Since(start))
	}
	stop()
	attackers.Wait()
	kit.True(t, "nothing to wait", func() bool {
		l.passwords.mu.Lock()
		defer l.passwords.mu.Unlock()
		q := &l.passwords
		return q.running == 0 && q.waiting.Len()+q.suspects.Len() == 0
	})
}

// TestSuspects: a user is suspect after its own wrong password, all of an address after those of eight, and
// nobody a minute later.
func TestSuspects(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var f *failures
	if f.suspects("c0", now) {
		t.Error("suspect without a failure")
	}
	for i := range suspectUsers {
		f = f.with(fmt.Sprint("c", i), now)
		if other := f.suspects("other", now); !f.suspects("c0", now) || other != (i == suspectUsers-1) {
			t.Errorf("after %d failures: another user is suspect: %v", i+1, other)
		}
	}
	for i := range 100 {
		f = f.with(fmt.Sprint("more", i), now)
	}
	if len(f.users) != suspectUsers {
		t.Errorf("%d users are kept", len(f.users))
	}
	if now = now.Add(suspicion); f.suspects("c0", now) {
		t.Error("still suspect a minute later")
	}
	if f = f.with("c1", now); f.suspects("c0", now) || !f.suspects("c1", now) {
		t.Error("a new failure brings back those of others")
	}
}

func TestRest(t *testing.T) {
	for _, test := range []struct {
		took  time.Duration
		limit int
		want  time.Duration
	}{{60 * time.Millisecond, 1, 540 * time.Millisecond}, {60 * time.Millisecond, 2, 240 * time.Millisecond}, {60 * time.Millisecond, 12, 0}} {
		if got := rest(test.took, test.limit); got != test.want {
			t.Errorf("%v of %d: %v", test.took, test.limit, got)
		}
	}
}

func TestLog(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLimiter(Config{LogLinesPerSecond: 2}, func() time.Time { return now })
	lines := func(kind string, n int) (written, leftOut int) {
		for range n {
			more, ok := l.Log(kind)
			if ok {
				written++
			}
			leftOut += more
		}
		return written, leftOut
	}
	for i, step := range []struct {
		kind    string
		pause   time.Duration
		written int
		leftOut int
	}{
		{"refused", 0, 4, 0},
		{"other", 0, 4, 0},
		{"refused", time.Second, 2, 96},
		{"refused", time.Hour, 4, 98},
	} {
		now = now.Add(step.pause)
		if written, leftOut := lines(step.kind, 100); written != step.written || leftOut != step.leftOut {
			t.Errorf("step %d: %d lines, %d reported as left out, want %d, %d", i, written, leftOut, step.written, step.leftOut)
		}
	}
	if got := l.Stats().LogLinesLeftOut["refused"]; got != 96+98+96 {
		t.Errorf("%d lines left out", got)
	}
	l.Configure(Config{LogLinesPerSecond: 2, Connections: 1})
	if written, _ := lines("refused", 100); written != 0 {
		t.Errorf("%d lines after other limits have changed", written)
	}
	l.Configure(Config{LogLinesPerSecond: 3})
	if written, _ := lines("refused", 100); written != 6 {
		t.Errorf("%d lines with another limit", written)
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{}).WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{Pending: -1, Agent: Rate{BytesPerSecond: -1}}).Validate(); err == nil ||
		err.Error() != "limits.pending: must not be negative, got -1\nlimits.agent.bytesPerSecond: must not be negative, got -1" {
		t.Errorf("got %v", err)
	}
	l := New(Config{})
	l.Configure(Config{Pending: 1, PendingPerAddress: 5})
	for i, want := range []error{nil, ErrPending} {
		c, err := l.Accept(from("10.0.0.1"), func() {})
		if !errors.Is(err, want) {
			t.Errorf("connection %d: %v, want %v", i, err, want)
		}
		if c != nil {
			c.Busy()
		}
	}
}
