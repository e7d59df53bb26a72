package mqtt

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/proxy"
	"github.com/workwire/workwire/pkg/transport/websocket"
)

// refusedError is a reason code of the broker in a CONNACK, SUBACK, PUBACK or DISCONNECT.
type refusedError struct {
	code byte
	text string // the reason string, may be empty
}

// Error returns the reason code and its meaning.
func (e *refusedError) Error() string {
	meaning, known := meanings[e.code]
	if !known {
		meaning = "unknown reason code"
	}
	if e.text != "" {
		return fmt.Sprintf("reason code 0x%02X: %s (%q)", e.code, meaning, e.text)
	}
	return fmt.Sprintf("reason code 0x%02X: %s", e.code, meaning)
}

// Is reports whether a broker has refused a revocation list as [transport.ErrOutdated] says.
func (e *refusedError) Is(target error) bool {
	return target == transport.ErrOutdated && e.code == packets.PubackPayloadFormatInvalid && strings.HasPrefix(e.text, "outdated:")
}

// meanings describes the reason codes of MQTT 5.
var meanings = map[byte]string{
	0x00: "normal disconnection",
	0x80: "unspecified error",
	0x81: "malformed packet",
	0x82: "protocol error",
	0x83: "implementation specific error",
	0x84: "unsupported protocol version",
	0x85: "client identifier not valid",
	0x86: "bad user name or password",
	0x87: "not authorized",
	0x88: "server unavailable",
	0x89: "server busy",
	0x8A: "banned",
	0x8B: "server shutting down",
	0x8C: "bad authentication method",
	0x8D: "keep alive timeout",
	0x8E: "session taken over",
	0x8F: "topic filter invalid",
	0x90: "topic name invalid",
	0x91: "packet identifier in use",
	0x93: "receive maximum exceeded",
	0x94: "topic alias invalid",
	0x95: "packet too large",
	0x96: "message rate too high",
	0x97: "quota exceeded",
	0x98: "administrative action",
	0x99: "payload format invalid",
	0x9A: "retain not supported",
	0x9B: "QoS not supported",
	0x9C: "use another server",
	0x9D: "server moved",
	0x9E: "shared subscriptions not supported",
	0x9F: "connection rate exceeded",
	0xA0: "maximum connect time",
	0xA1: "subscription identifiers not supported",
	0xA2: "wildcard subscriptions not supported",
}

// advices says what to do about a reason code.
var advices = map[byte]string{
	0x81: "report a bug: the broker could not read what this client sent",
	0x82: "report a bug: the broker did not expect what this client sent",
	0x84: "use a broker that speaks MQTT 5",
	0x85: "give another client id, or allow this one in the broker's configuration",
	0x86: "check username and password (or passwordFile) of the transport configuration against the broker's",
	0x87: "check the credentials of the transport configuration and the broker's access rules for this client",
	0x8A: "ask the broker's operator to lift the ban of this client",
	0x8E: "another client connected with the same client id: give each its own, or stop the other one",
	0x95: "raise the broker's maximum packet size",
	0x97: "raise the broker's quota for this client",
	0x9C: "set brokerHost to the server that the broker refers to",
	0x9D: "set brokerHost to where the broker has moved to",
	0x9E: "remove $share from the topic patterns, or enable shared subscriptions on the broker",
	0xA2: "enable wildcard subscriptions on the broker, or name the ids in the topic patterns",
}

// errNoAnswer is returned if the broker closes the connection without a CONNACK.
var errNoAnswer = errors.New("the broker closed the connection without an answer")

// connectError returns the reason of a failed attempt to connect.
func connectError(err error) error {
	var through *proxy.Error
	switch {
	case errors.As(err, &through):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	default:
		return err
	}
}

// adviceFor returns what to do about err, empty if only waiting helps.
func adviceFor(err error) string {
	var (
		refused    *refusedError
		authority  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		invalid    x509.CertificateInvalidError
		record     tls.RecordHeaderError
		lookup     *net.DNSError
		path       *os.PathError
		connection *net.OpError
		through    *proxy.Error
		socket     *websocket.RefusedError
	)
	switch {
	case errors.As(err, &through):
		return proxyAdvice(through)
	case errors.As(err, &socket):
		return "check the path in brokerHost, and that what answers there serves MQTT over WebSocket"
	case errors.As(err, &refused):
		return advices[refused.code]
	case errors.As(err, &authority):
		return "set caFile (or caData) to the authority that signed the broker's certificate, or add it there while the authority is being replaced"
	case errors.As(err, &hostname):
		return "set brokerHost to a name that the broker's certificate holds, or add this name to the certificate"
	case errors.As(err, &invalid):
		return "renew the broker's certificate, or check the clocks"
	case errors.As(err, &record):
		return "use the broker's TLS port in brokerHost, or remove the certificates to connect without TLS"
	case errors.As(err, &path):
		return "make the file readable for this process"
	case errors.As(err, &lookup):
		return "check the host name in brokerHost"
	case errors.As(err, &connection) && connection.Op == "remote error":
		return alertAdvice(connection.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check brokerHost, and that the broker runs"
	case errors.Is(err, errNoAnswer):
		return "check that brokerHost is the broker's MQTT port, and whether that port requires TLS"
	default:
		return ""
	}
}

// proxyAdvice says what to do about a proxy that does not connect.
func proxyAdvice(err *proxy.Error) string {
	switch err.Code {
	case http.StatusProxyAuthRequired:
		return "put a user name and a password that the proxy accepts into HTTPS_PROXY: http://user:password@host:port"
	case 0:
		return "check HTTPS_PROXY, or add the broker to NO_PROXY to connect without a proxy"
	case http.StatusForbidden, http.StatusMethodNotAllowed:
		return "have the proxy allow CONNECT to this host and port (many allow port 443 only), or add the broker to NO_PROXY to connect without a proxy"
	}
	return "check brokerHost, and whether the proxy can reach it, or add the broker to NO_PROXY to connect without a proxy"
}

// alertAdvices says what to do about the TLS alerts of a broker.
var alertAdvices = map[tls.AlertError]string{
	42:  "the broker refused this client's certificate, which may be revoked: its log says why; give another one in clientCertFile and clientKeyFile",
	44:  "this client's certificate is revoked: give another one in clientCertFile and clientKeyFile",
	45:  "this client's certificate has expired: renew it (clientCertFile, clientKeyFile), or check the clocks",
	48:  "the broker does not trust the authority of this client's certificate: give one of an authority that it does (clientCertFile), or add the authority to the broker's",
	116: "the broker wants a client certificate: set clientCertFile and clientKeyFile",
}

// isCertificateRefused reports whether err is a TLS alert of the broker about the certificate of this client: it is bad, revoked, expired,
// unknown, or of an authority that is.
func isCertificateRefused(err error) bool {
	var connection *net.OpError
	if !errors.As(err, &connection) || connection.Op != "remote error" {
		return false
	}
	return slices.ContainsFunc([]tls.AlertError{42, 44, 45, 46, 48}, func(alert tls.AlertError) bool { return connection.Err.Error() == alert.Error() })
}

// alertAdvice compares the text of alert, since its type is not exported by crypto/tls.
func alertAdvice(alert error) string {
	for code, advice := range alertAdvices {
		if alert.Error() == code.Error() {
			return advice
		}
	}
	return "the broker refused this client's certificate: check clientCertFile, or give one if there is none"
}

// reasonKey returns a text that is equal for errors with the same reason. Their own texts can
// differ in the local port, and in the time at which a certificate was found to have expired. The
// reason of several addresses is that of all of them.
func reasonKey(err error) string {
	if several, ok := errors.AsType[unreachableError](err); ok {
		keys := make([]string, len(several))
		for i, err := range several {
			keys[i] = reasonKey(err)
		}
		slices.Sort(keys)
		return strings.Join(slices.Compact(keys), "; ")
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return fmt.Sprintf("certificate: %d", invalid.Reason)
	}
	var connection *net.OpError
	if errors.As(err, &connection) {
		return connection.Op + ": " + connection.Err.Error()
	}
	return err.Error()
}
