package rabbitmqkit

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/broker/rabbitmq"
)

// TestRender: without TLS there is one listener, and nothing of TLS.
func TestRender(t *testing.T) {
	conf := tlsSettings.ReplaceAllString(rabbitmq.Conf, "")
	if strings.Contains(conf, "\nssl_options") || strings.Contains(conf, "\nmqtt.listeners") || strings.Contains(conf, "\nmqtt.ssl") || !strings.Contains(conf, "\nlisteners.tcp = none") {
		t.Errorf("got %s", conf)
	}
}
