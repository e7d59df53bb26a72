// Package webproxy has an HTTP proxy for tests, as it stands between a network and the internet: it connects to port 443 of one
// host, for one user.
package webproxy

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The credentials of its user.
const (
	User     = "edge"
	Password = "pr0xy-s3cret"
)

// Proxy is a running proxy.
type Proxy struct {
	// Addr is its host:port.
	Addr string
	// Header is written in the answer that it has connected, lines that end with "\r\n". Set it before the first connection.
	Header string

	host, target string
	connected    atomic.Int32
}

// Start starts a proxy that looks up host as target, host:port, until the end of the test.
func Start(t testing.TB, host, target string) *Proxy {
	t.Helper()
	p := &Proxy{host: host, target: target}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.Addr = strings.TrimPrefix(server.URL, "http://")
	return p
}

// URL returns what HTTPS_PROXY is for its user.
func (p *Proxy) URL() string { return "http://" + User + ":" + Password + "@" + p.Addr }

// Connected returns how many connections it has made.
func (p *Proxy) Connected() int { return int(p.connected.Load()) }

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(User+":"+Password))
	switch {
	case r.Method != http.MethodConnect:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Header.Get("Proxy-Authorization") != want:
		w.WriteHeader(http.StatusProxyAuthRequired)
	case !strings.HasSuffix(r.Host, ":443"):
		w.WriteHeader(http.StatusForbidden)
	case r.Host != p.host+":443":
		w.WriteHeader(http.StatusBadGateway)
	default:
		p.connect(w)
	}
}

func (p *Proxy) connect(w http.ResponseWriter) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }() // one of both has ended
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }() // likewise
	if _, err := client.Write([]byte("HTTP/1.1 200 Connection established\r\n" + p.Header + "\r\n")); err != nil {
		return
	}
	p.connected.Add(1)
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // ends with the connection
		ended <- struct{}{}
	}
	go pass(server, buffered)
	go pass(client, server)
	<-ended
}
