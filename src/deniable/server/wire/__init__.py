"""The PostgreSQL wire protocol, version 3, so that psql and every PostgreSQL driver can ask. Only DP answers leave."""
