// Package proxy connects through the HTTP proxy that the environment names for TLS: HTTPS_PROXY, but not to the hosts in
// NO_PROXY, each also in lower case, and never to this machine. A proxy may want a user name and a password,
// HTTPS_PROXY=http://user:password@proxy.example.com:3128, and may itself be reached with TLS, https://.
//
//	if through, err := proxy.FromEnvironment("broker.example.com:443"); through != nil {
//		conn, err := through.Dial(ctx, "broker.example.com:443")
//	}
package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 10

// Proxy is an HTTP proxy. It is safe for concurrent use.
type Proxy struct{ url *url.URL }

// FromEnvironment returns the proxy for TLS connections to address (host:port), nil for none.
func FromEnvironment(address string) (*Proxy, error) {
	settings := httpproxy.FromEnvironment()
	if _, err := url.Parse(settings.HTTPSProxy); err != nil { // ProxyFunc would go without
		if _, err := url.Parse("http://" + settings.HTTPSProxy); err != nil {
			// The text of err may have the password.
			return nil, errors.New("HTTPS_PROXY: is no URL: use http://host:port or http://user:password@host:port")
		}
	}
	found, err := settings.ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, nil
	}
	if found.Scheme != "http" && found.Scheme != "https" {
		return nil, fmt.Errorf("HTTPS_PROXY: the scheme %q is not supported: use http:// or https://", found.Scheme)
	}
	return &Proxy{found}, nil
}

// String returns the address of p, without the credentials.
func (p *Proxy) String() string {
	port := map[string]string{"http": "80", "https": "443"}[p.url.Scheme]
	return net.JoinHostPort(p.url.Hostname(), cmp.Or(p.url.Port(), port))
}

// Error says that a proxy could not be reached, or does not connect.
type Error struct {
	Proxy string // host:port
	Code  int    // the status of its answer; 0: there is none
	err   error
}

// Error names the proxy.
func (e *Error) Error() string { return fmt.Sprintf("proxy %s: %v", e.Proxy, e.err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Dial has the proxy connect to address (host:port), whose name it looks up. Errors are of type [*Error].
func (p *Proxy) Dial(ctx context.Context, address string) (net.Conn, error) {
	failed := &Error{Proxy: p.String()}
	dialer := net.Dialer{KeepAlive: -1} // the protocol has its own
	conn, err := dialer.DialContext(ctx, "tcp", p.String())
	if err != nil {
		failed.err = err
		return nil, failed
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if p.url.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: p.url.Hostname(), MinVersion: tls.VersionTLS12})
	}
	failed.Code, failed.err = p.connect(conn, address)
	if !stop() {
		failed.err = errors.Join(ctx.Err(), failed.err)
	}
	if failed.err != nil {
		_ = conn.Close()
		return nil, failed
	}
	return conn, nil
}

// connect sends CONNECT (RFC 9110, section 9.3.6), and reads the answer.
func (p *Proxy) connect(conn net.Conn, address string) (code int, err error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := p.url.User; user != nil {
		password, _ := user.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	// The body is not closed, which would read it: a successful answer has none, whatever its header says
	// (RFC 9110, section 9.3.6), and after another one the connection ends.
	answer, err := http.ReadResponse(reader, request) //nolint:bodyclose // see above
	if err != nil {
		return 0, fmt.Errorf("read its answer: %w", err)
	}
	if answer.StatusCode/100 != 2 {
		return answer.StatusCode, fmt.Errorf("it does not connect to %s: %s", address, answer.Status)
	}
	if reader.Buffered() > 0 {
		return answer.StatusCode, errors.New("it sent data that nobody has asked for")
	}
	return answer.StatusCode, nil
}
