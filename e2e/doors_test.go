package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// doors looks at what is open to whom.
func doors(s *stack) {
	published := map[string]string{}
	for service, c := range s.containers() {
		for _, bindings := range c.NetworkSettings.Ports {
			for _, b := range bindings {
				published[service] += b.HostIP + ":" + b.HostPort
			}
		}
		user := "65532:65532"
		if service == "certs" {
			user = "0:0" // docs/compose.md says why
		}
		if c.Config.User != user || !c.HostConfig.ReadonlyRootfs || c.HostConfig.Privileged ||
			!slices.Equal(c.HostConfig.CapDrop, []string{"ALL"}) || !slices.Contains(c.HostConfig.SecurityOpt, "no-new-privileges:true") {
			s.Errorf("%s runs as %q, with %+v", service, c.Config.User, c.HostConfig)
		}
		var networks []string
		switch service {
		case "hub-api", "hub":
			networks = []string{s.project + "_hub"}
		case "spoke", "agent":
			networks = []string{s.project + "_cluster1"}
		case "broker":
			networks = []string{s.project + "_cluster1", s.project + "_hub"}
		case "certs":
			networks = []string{"none"}
		}
		if got := slices.Sorted(maps.Keys(c.NetworkSettings.Networks)); !slices.Equal(got, networks) {
			s.Errorf("%s is in the networks %v, want %v", service, got, networks)
		}
	}
	if want := map[string]string{"hub-api": "127.0.0.1:" + s.hubPort, "broker": "127.0.0.1:" + s.brokerPort, "hub": "127.0.0.1:" + s.webPort}; !maps.Equal(published, want) {
		s.Errorf("published is %v, want %v", published, want)
	}

	s.certificates("hub1", "ours")
	s.accepted("ours")
	s.refused("")
	s.foreign("foreign")
	s.refused("foreign")
	s.anonymous()
	s.dashboard()
}

// anonymous has the hub API refuse who shows no certificate.
func (s *stack) anonymous() {
	s.Helper()
	client := &http.Client{Timeout: soon, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it is about the client
	defer client.CloseIdleConnections()
	for _, path := range []string{"/apis/work.open-cluster-management.io/v1/manifestworks", "/api/v1/secrets", "/metrics"} {
		response, err := client.Get("https://127.0.0.1:" + s.hubPort + path)
		kit.NoError(s, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden {
			s.Errorf("the hub API answers GET %s of nobody with %s", path, response.Status)
		}
	}
}

// foreign makes, in dir/to, the certificate of hub1 by another authority.
func (s *stack) foreign(to string) {
	s.Helper()
	kit.NoError(s, os.Mkdir(s.path(to), 0o700))
	s.keep(to+"/certificates.yaml", "certificates:\n- {name: hub1, role: source, directory: .}\n")
	s.must(s.run("", "bin/workctl", "certs", "ensure", "--config="+s.path(to+"/certificates.yaml")))
	ours, err := os.ReadFile(s.path("ours/ca.crt"))
	kit.NoError(s, err)
	s.keep(to+"/ca.crt", string(ours)) // it is the broker that is to refuse
}

func (s *stack) accepted(certificate string) {
	s.Helper()
	if err := s.connect(certificate); err != nil {
		s.Errorf("the broker refuses the certificate %s: %v", certificate, err)
	}
}

func (s *stack) refused(certificate string) {
	s.Helper()
	var fault *net.OpError
	err := s.connect(certificate)
	if !errors.As(err, &fault) || fault.Op != "remote error" { // an alert of TLS
		s.Errorf("it is not the broker that refuses the certificate %q: %v", certificate, err)
		return
	}
	s.Logf("the broker refuses the certificate %q: %v", certificate, err)
}

// connect says hello to the broker, as the hub, with the certificate in dir/certificate, or none.
// The broker's own has to be of the authority in dir/ours.
func (s *stack) connect(certificate string) error {
	s.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "broker", RootCAs: x509.NewCertPool()}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(s.path(certificate+"/tls.crt"), s.path(certificate+"/tls.key"))
		kit.NoError(s, err)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	authorities, err := os.ReadFile(s.path("ours/ca.crt"))
	if err != nil || !config.RootCAs.AppendCertsFromPEM(authorities) {
		s.Fatalf("no authorities in ours/ca.crt: %v", err)
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: soon}, "tcp", "127.0.0.1:"+s.brokerPort, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(soon))
	// CONNECT of MQTT 5, clean start, with the client id e2e.
	if _, err := conn.Write([]byte("\x10\x10\x00\x04MQTT\x05\x02\x00\x1e\x00\x00\x03e2e")); err != nil {
		return err
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if answer[0] != 0x20 || answer[3] != 0 { // CONNACK, reason code 0
		return fmt.Errorf("the broker answers % x", answer)
	}
	return nil
}
