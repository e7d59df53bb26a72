package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxProbeResponse is the maximum size of a response in bytes that a probe reads.
const maxProbeResponse = 4096

// Probe gets url, the /readyz or /healthz of a listener, and returns nil if the status code is
// 200. Otherwise the error contains the response. Like a probe of the kubelet, it does not
// verify the certificate: it sends no secrets.
func Probe(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	response, err := client.Do(request)
	if err != nil {
		return err // names method and URL
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProbeResponse))
	if err != nil {
		return fmt.Errorf("read the response of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s returned %d:\n%s", url, response.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}
