package mqtt

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/proxy"
	"github.com/workwire/workwire/pkg/transport/websocket"
)

// nextAddressDelay is how long an address is waited for before the next one is tried as well, so
// that one that does not react at all, for example of a machine without power, does not use up the
// time of the others.
const nextAddressDelay = time.Second

// endpoint is one of the places where the broker listens: an address of the configuration, and one
// of the IP addresses that its name has.
type endpoint struct {
	host    string // as configured
	address string // host:port with the IP address, or the name if a proxy connects
}

// dialed is a connection without MQTT.
type dialed struct {
	endpoint     endpoint
	raw, secured net.Conn // the same without TLS and WebSocket
	certs        config.Certificates
}

// dial connects with the current certificates to any endpoint of the broker, which are tried in random
// order. last is the one of the previous connection, which comes last; it may be empty.
func dial(ctx context.Context, broker config.Config, last endpoint) (dialed, error) {
	var certs config.Certificates
	if broker.UsesTLS() {
		var err error
		if certs, err = broker.Certificates(); err != nil {
			return dialed{}, err
		}
	}
	return race(ctx, attemptOrder(broker.Addresses(), last.host, rand.Shuffle), func(ctx context.Context, host string) (dialed, error) {
		a, err := config.ParseAddress(host)
		if err != nil {
			return dialed{}, err
		}
		way := way{host: host, url: a.URL}
		if broker.UsesTLS() {
			if way.settings, err = broker.TLSConfig(host, certs); err != nil {
				return dialed{}, err
			}
		}
		if way.proxy, err = broker.Proxy(a); err != nil {
			return dialed{}, err
		}
		addresses := []string{a.Host} // the proxy looks it up
		if way.proxy == nil {
			if addresses, err = lookup(ctx, a.Host); err != nil {
				return dialed{}, err
			}
		}
		return race(ctx, attemptOrder(addresses, last.address, rand.Shuffle), func(ctx context.Context, address string) (dialed, error) {
			d, err := way.dial(ctx, address)
			d.certs = certs
			return d, err
		})
	})
}

// dialer sends no keep-alives of TCP: those of MQTT find a dead connection as soon, and cost a twelfth.
var dialer = net.Dialer{KeepAlive: -1}

// way is how an address of the configuration is connected to.
type way struct {
	host     string       // the address of the configuration
	proxy    *proxy.Proxy // nil: none
	settings *tls.Config  // nil: without TLS
	url      *url.URL     // of a WebSocket; nil: without
}

// dial connects to address, host:port with an IP address, or with a name that the proxy looks up.
func (w way) dial(ctx context.Context, address string) (d dialed, err error) {
	d.endpoint = endpoint{w.host, address}
	if w.proxy != nil {
		d.raw, err = w.proxy.Dial(ctx, address)
	} else {
		d.raw, err = dialer.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return dialed{}, err
	}
	d.secured = d.raw
	if w.settings != nil {
		secured := tls.Client(d.raw, w.settings)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = d.raw.Close()
			return dialed{}, fmt.Errorf("TLS handshake with %s: %w", w.host, err)
		}
		d.secured = secured
	}
	if w.url != nil {
		if d.secured, err = websocket.Client(ctx, d.secured, w.url.String()); err != nil {
			return dialed{}, err // it has closed the connection
		}
	}
	return d, nil
}

// lookup returns the addresses of host with each of its IP addresses. Its errors are those of a
// [net.Dialer].
func lookup(ctx context.Context, host string) ([]string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(name) != nil {
		return []string{host}, nil
	}
	found, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	for i, ip := range found {
		found[i] = net.JoinHostPort(ip, port)
	}
	return found, nil
}

// attemptOrder returns addresses in random order, with last at the end if it is one of them.
func attemptOrder(addresses []string, last string, shuffle func(n int, swap func(i, j int))) []string {
	order := slices.Clone(addresses)
	shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	slices.SortStableFunc(order, func(a, b string) int {
		switch {
		case a == last && b != last:
			return 1
		case b == last && a != last:
			return -1
		}
		return 0
	})
	return order
}

// race calls connect for each address until one succeeds: for the next one when one has failed, or has
// taken longer than nextAddressDelay. It returns when all calls have; connections that come too
// late are closed.
func race(ctx context.Context, addresses []string, connect func(context.Context, string) (dialed, error)) (dialed, error) {
	if len(addresses) == 1 {
		return connect(ctx, addresses[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		dialed
		err error
	}
	results := make(chan result)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	next, waiting := 0, 0
	start := func() {
		address := addresses[next]
		next++
		waiting++
		group.Go(func() {
			d, err := connect(ctx, address)
			select {
			case results <- result{d, err}:
			case <-ctx.Done():
				if err == nil {
					_ = d.raw.Close() // another one was faster
				}
			}
		})
	}
	start()
	timer := time.NewTimer(nextAddressDelay)
	defer timer.Stop()
	var failed unreachableError
	for {
		select {
		case r := <-results:
			if r.err == nil {
				return r.dialed, nil
			}
			failed = append(failed, r.err)
			if waiting--; waiting == 0 && next == len(addresses) {
				return dialed{}, failed.sorted()
			}
		case <-timer.C:
		case <-ctx.Done():
			return dialed{}, append(failed, ctx.Err()).sorted()
		}
		if next < len(addresses) {
			start()
			timer.Reset(nextAddressDelay)
		}
	}
}

// unreachableError has the error of each address.
type unreachableError []error

// Error returns all errors.
func (e unreachableError) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all errors.
func (e unreachableError) Unwrap() []error { return e }

// sorted returns e in an order that does not depend on chance.
func (e unreachableError) sorted() error {
	slices.SortFunc(e, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return e
}
