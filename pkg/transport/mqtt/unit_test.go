package mqtt

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/test/kit"
)

func TestRetryDelay(t *testing.T) {
	for _, test := range []struct {
		n             int
		least, mostly time.Duration // for random 0 and almost 1
	}{
		{0, 0, 100 * time.Millisecond},
		{1, 100 * time.Millisecond, 200 * time.Millisecond},
		{2, 200 * time.Millisecond, 400 * time.Millisecond},
		{8, 12800 * time.Millisecond, 25600 * time.Millisecond},
		{9, 15 * time.Second, 30 * time.Second},
		{10_000, 15 * time.Second, 30 * time.Second},
	} {
		if least := retryDelay(test.n, 0); least != test.least {
			t.Errorf("attempt %d waits at least %s, want %s", test.n, least, test.least)
		}
		if most := retryDelay(test.n, 0.999999); most > test.mostly || most < test.mostly*9/10 {
			t.Errorf("attempt %d waits at most %s, want almost %s", test.n, most, test.mostly)
		}
	}
}

func TestRetries(t *testing.T) {
	r, now := reconnectBackoff{attempt: -1}, time.Now()
	expect := func(what string, want ...time.Duration) {
		t.Helper()
		for i, w := range want {
			if got := r.nextDelay(now, 0); got != w {
				t.Errorf("%s, attempt %d waits %s, want %s", what, i, got, w)
			}
		}
	}
	const ms = time.Millisecond
	expect("at first", 0, 0, 100*ms, 200*ms, 400*ms)
	r.connectionLost(time.Minute, false)
	expect("after a good connection", 0, 100*ms)
	r.connectionLost(10*ms, false)
	expect("after one that was hardly up", 200*ms)
	r.connectionLost(time.Second, false)
	expect("after one of a second", 0)
	r.connectionLost(time.Hour, true)
	expect("taken over", 800*ms)
	r.connectionLost(time.Second, true)
	expect("taken over again", 1600*ms)
	r.connectionLost(2*time.Second, true)
	expect("and again", 3200*ms)
	r.connectionLost(time.Minute, false)
	expect("lost otherwise", 0)
	r.connectionLost(time.Minute, true)
	expect("taken over again", 800*ms)
}

// TestRetriesOfCluster: a cluster has a second to notice that one of its nodes is dead.
func TestRetriesOfCluster(t *testing.T) {
	r, now := reconnectBackoff{attempt: -1, several: true}, time.Now()
	expect := func(what string, want ...time.Duration) {
		t.Helper()
		for i, w := range want {
			if got := r.nextDelay(now, 0.5); got != w {
				t.Errorf("%s, attempt %d waits %s, want %s", what, i, got, w)
			}
		}
	}
	const ms = time.Millisecond
	expect("at first", 0, 50*ms)
	r.connectionLost(time.Minute, false)
	expect("after a good connection", 1500*ms, 50*ms, 150*ms)
	r.connectionLost(10*ms, false)
	expect("after one that was hardly up", 300*ms)
	r.connectionLost(time.Hour, true)
	expect("taken over", 1200*ms)
}

// TestRetriesOfWhoIsNotThere: a broker that comes back within a minute is found within a second,
// one that is there and refuses is left in peace.
func TestRetriesOfWhoIsNotThere(t *testing.T) {
	r, now := reconnectBackoff{attempt: -1}, time.Now()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	noName := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
	attempt := func(err error) time.Duration {
		now = now.Add(time.Second)
		r.connectFailed(now, err)
		return r.nextDelay(now, 0.999999).Round(time.Millisecond)
	}
	const ms = time.Millisecond
	r.nextDelay(now, 0)
	for i, want := range []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 800 * ms, 800 * ms} {
		if got := attempt(refused); got != want {
			t.Errorf("attempt %d waits %s, want %s", i, got, want)
		}
	}
	for i, want := range []time.Duration{1600 * ms, 3200 * ms, 6400 * ms} {
		if got := attempt(io.EOF); got != want {
			t.Errorf("attempt %d at a broker that hangs up waits %s, want %s", i, got, want)
		}
	}
	for now.Sub(r.notListeningSince) < notListeningPeriod-time.Second {
		if got := attempt(noName); got != 800*ms {
			t.Fatalf("while the name is gone, an attempt waits %s", got)
		}
	}
	for i, want := range []time.Duration{1600 * ms, 3200 * ms, 6400 * ms} {
		if got := attempt(refused); got != want {
			t.Errorf("attempt %d after a minute waits %s, want %s", i, got, want)
		}
	}
	r.connectionLost(time.Millisecond, false)
	if got := attempt(refused); got < 6400*ms {
		t.Errorf("after a connection that was hardly up an attempt waits %s", got)
	}
	r.connectionLost(time.Minute, false)
	for range 10 {
		if got := attempt(refused); got > 800*ms {
			t.Errorf("in another outage an attempt waits %s", got)
		}
	}
}

func TestWindow(t *testing.T) {
	w := newAckWindow()
	ids := func() (ids []uint16) {
		for _, m := range w.takeAcked() {
			ids = append(ids, m.id)
		}
		return ids
	}
	ready := func() bool {
		select {
		case <-w.ready:
			return true
		default:
			return false
		}
	}
	one, two, three := w.add(1, 1), w.add(2, 1), w.add(3, 1)
	two()
	if ready() || ids() != nil {
		t.Error("the second message overtakes the first")
	}
	one()
	one()
	if !ready() || ready() {
		t.Error("there is not one token")
	}
	if diff := cmp.Diff([]uint16{1, 2}, ids()); diff != "" {
		t.Error(diff)
	}
	two()
	if ready() {
		t.Error("an acknowledgement that was taken counts again")
	}
	three()
	if diff := cmp.Diff([]uint16{3}, ids()); diff != "" {
		t.Error(diff)
	}
}

func TestPacketSize(t *testing.T) {
	for _, data := range []int{0, 1, 100, 127, 128, 16000, 16384, 70_000, 2_100_000} {
		for _, qos := range []byte{0, 1} {
			e := cloudevents.New()
			e.SetID("id")
			e.SetSource("hub1")
			e.SetType("a.b")
			e.SetExtension("metadata", strings.Repeat("ä", min(data, 30_000)))
			kit.NoError(t, e.SetData(cloudevents.ApplicationJSON, bytes.Repeat([]byte{'1'}, data)))
			p, err := encode(t.Context(), "sources/hub1", &e, qos)
			kit.NoError(t, err)
			var wire bytes.Buffer
			if _, err := p.Packet().WriteTo(&wire); err != nil {
				t.Fatal(err)
			}
			if got := packetSize(p); got != wire.Len() {
				t.Errorf("%d bytes of data with QoS %d: size is %d, on the wire %d", data, qos, got, wire.Len())
			}
		}
	}
}

func TestAdvise(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for _, test := range []struct {
		err  error
		want string
	}{
		{&refusedError{code: 0x86}, "check username and password"},
		{&refusedError{code: 0x8E}, "same client id"},
		{&refusedError{code: 0x8B}, ""},
		{x509.UnknownAuthorityError{}, "set caFile"},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}, "set brokerHost to a name"},
		{x509.CertificateInvalidError{Reason: x509.Expired}, "renew the broker's certificate"},
		{tls.RecordHeaderError{Msg: "x"}, "use the broker's TLS port"},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, "make the file readable"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{}}, "check the host name"},
		{alert, "refused this client's certificate"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "that the broker runs"},
		{io.EOF, ""},
		{connectError(io.EOF), "whether that port requires TLS"},
		{&refusedError{code: 0x85}, "give another client id"},
	} {
		got := adviceFor(fmt.Errorf("wrapped: %w", test.err))
		if !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("advice on %v is %q, want %q", test.err, got, test.want)
		}
	}
	for code := range advices {
		if meanings[code] == "" {
			t.Errorf("0x%02X has an advice and no meaning", code)
		}
	}
}

func TestSameReason(t *testing.T) {
	reset := func(port int) error {
		local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		return fmt.Errorf("x: %w", &net.OpError{Op: "read", Source: local, Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	}
	if reset(1).Error() == reset(2).Error() || reasonKey(reset(1)) != reasonKey(reset(2)) {
		t.Errorf("reasons differ: %s, %s", reasonKey(reset(1)), reasonKey(reset(2)))
	}
	if reasonKey(reset(1)) == reasonKey(io.EOF) {
		t.Error("different reasons are the same")
	}
	expired := func(now string) error {
		return fmt.Errorf("x: %w", x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time " + now + " is after 2026-01-01T00:00:00Z"})
	}
	if reasonKey(expired("2026-01-02T00:00:00Z")) != reasonKey(expired("2026-01-03T00:00:00Z")) || reasonKey(expired("")) == reasonKey(x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}) {
		t.Errorf("reasons of certificates: %s", reasonKey(expired("")))
	}
	several := unreachableError{reset(1), io.EOF}
	if reasonKey(several) != reasonKey(unreachableError{io.EOF, reset(2), reset(3)}) {
		t.Errorf("reasons of several addresses differ: %s", reasonKey(several))
	}
	if certificate := (unreachableError{reset(1), x509.UnknownAuthorityError{}}); reasonKey(several) == reasonKey(certificate) || reasonKey(reset(1)) == reasonKey(certificate) {
		t.Error("another reason at another address is the same")
	}
}

// What others publish must not harm, and what decodes must encode to the same.
func FuzzDecode(f *testing.F) {
	f.Add("application/json", "ce-id", "a", "ce-source", "b", "ce-type", "c", "1.0", []byte("{}"))
	f.Add("application/json", "ce-time", "no time", "ce-Ünicode", "b", "ce-", "", "1.0", []byte(nil))
	f.Add("application/cloudevents+json", "x", "", "y", "", "z", "", "", []byte(`{"specversion":"1.0","id":"a","source":"b","type":"c","data":{}}`))
	f.Add("application/cloudevents-batch+json", "", "", "", "", "", "", "0.3", []byte("[]"))
	f.Fuzz(func(t *testing.T, contentType, k1, v1, k2, v2, k3, v3, version string, payload []byte) {
		p := &paho.Publish{Topic: "a", Payload: payload, Properties: &paho.PublishProperties{ContentType: contentType}}
		for _, pair := range [][2]string{{"ce-specversion", version}, {k1, v1}, {k2, v2}, {k3, v3}} {
			p.Properties.User.Add(pair[0], pair[1])
		}
		e, err := decode(context.Background(), p)
		if err != nil {
			return
		}
		again, err := encode(context.Background(), "a", &e, 1)
		if err != nil {
			return // it holds what MQTT can not carry
		}
		var wire bytes.Buffer
		if _, err := again.Packet().WriteTo(&wire); err != nil {
			t.Fatal(err)
		}
		if packetSize(again) != wire.Len() {
			t.Errorf("size is %d, on the wire %d", packetSize(again), wire.Len())
		}
		read, err := packets.ReadPacket(&wire)
		if err != nil {
			t.Fatalf("the packet can not be read: %v", err)
		}
		back, err := decode(context.Background(), paho.PublishFromPacketPublish(read.Content.(*packets.Publish)))
		if err != nil {
			t.Fatalf("it does not decode again: %v", err)
		}
		back.DataBase64, e.DataBase64 = false, false
		if diff := cmp.Diff(e.String(), back.String()); diff != "" {
			t.Errorf("event (-before +after):\n%s", diff)
		}
	})
}
