// Package rabbitmq has the configuration and the access rules of RabbitMQ 4 for Workwire: users copy rabbitmq.conf and
// enabled_plugins and make definitions.json, and test/kit/rabbitmqkit runs them.
package rabbitmq

import _ "embed" // the configuration files

var (
	// Conf is the configuration.
	//go:embed rabbitmq.conf
	Conf string
	// Plugins is the list of plugins.
	//go:embed enabled_plugins
	Plugins string
	// Advanced is the further configuration for MQTT in WebSockets, with the plugin rabbitmq_web_mqtt.
	//go:embed advanced.config
	Advanced string
)
