package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"

	"github.com/workwire/workwire/test/kit"
)

// dashboard signs in as docs/compose.md says, and looks at the example. Who has no token sees nothing.
func (s *stack) dashboard() {
	s.Helper()
	authorities, err := os.ReadFile(s.path("ours/ca.crt"))
	kit.NoError(s, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		s.Fatal("no authorities in ours/ca.crt")
	}
	jar, err := cookiejar.New(nil)
	kit.NoError(s, err)
	browser := &http.Client{Timeout: soon, Jar: jar, Transport: &http.Transport{TLSClientConfig: config}}
	defer browser.CloseIdleConnections()
	const work = "/works/cluster1/hello-work-demo"
	at := "https://127.0.0.1:" + s.webPort

	page, err := open(browser, at+work, nil)
	if err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(page, "hello-work-demo is") {
		s.Errorf("without a token the dashboard answers %v: %s", err, page)
	}
	if page, err := open(browser, at+"/login", url.Values{"token": {"rubbish"}}); err == nil || !strings.Contains(err.Error(), "401") {
		s.Errorf("with rubbish for a token the dashboard answers %v: %s", err, page)
	}
	token := s.compose("exec", "-T", "hub-api", "kubectl", "create", "token", "viewer", "--namespace=workwire-hub", "--duration=8h")
	if _, err := open(browser, at+"/login", url.Values{"token": {token}, "next": {work}}); err != nil {
		s.Fatalf("sign in: %v", err)
	}
	s.eventually("the dashboard shows the example as ready", soon, func() error {
		page, err := open(browser, at+work, nil)
		if err == nil && (!strings.Contains(page, "hello-work-demo") || !strings.Contains(strings.ToLower(page), "ready")) {
			err = fmt.Errorf("the page is\n%s", page)
		}
		return err
	})
}

// open returns the page at an address, after a form is sent there if form is not nil; an error for one
// that is not 200.
func open(browser *http.Client, at string, form url.Values) (string, error) {
	request, err := http.NewRequest(http.MethodGet, at, nil)
	if form != nil {
		request, err = http.NewRequest(http.MethodPost, at, strings.NewReader(form.Encode()))
	}
	if err != nil {
		return "", err
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := browser.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}
