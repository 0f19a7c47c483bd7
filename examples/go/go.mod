module rallypoint-member-example

go 1.19

require github.com/coder/websocket v1.8.13
