import java.sql.*;
import java.util.*;
/** Calls of JDBC against a server: metadata, parameters of each type, arrays, transactions. Prints what failed. */
public class JdbcCalls {
  static int ok=0, all=0;
  interface W { void run() throws Exception; }
  static void t(String name, W w){ all++; try { w.run(); ok++; } catch(Exception e){ System.out.println("FAIL "+name+": "+e.getMessage().split("\n")[0]); } }
  static int drain(ResultSet r) throws SQLException { int n=0; while(r.next()) n++; r.close(); return n; }
  public static void main(String[] a) throws Exception {
    Properties p=new Properties(); p.put("user",a[1]); p.put("password",a[2]);
    Connection c=DriverManager.getConnection("jdbc:postgresql://127.0.0.1:"+a[0]+"/clinic?sslmode=disable",p);
    DatabaseMetaData m=c.getMetaData();
    t("tables",()->{ if(drain(m.getTables(null,"public","%",null))<2) throw new Exception("few"); });
    t("columns",()->{ if(drain(m.getColumns(null,"public","people","%"))<4) throw new Exception("few"); });
    t("pk",()->drain(m.getPrimaryKeys(null,"public","people")));
    t("ik",()->drain(m.getImportedKeys(null,"public","people")));
    t("ek",()->drain(m.getExportedKeys(null,"public","people")));
    t("index",()->drain(m.getIndexInfo(null,"public","people",false,false)));
    t("typeinfo",()->drain(m.getTypeInfo()));
    t("schemas",()->drain(m.getSchemas()));
    t("catalogs",()->drain(m.getCatalogs()));
    t("tabletypes",()->drain(m.getTableTypes()));
    t("procedures",()->drain(m.getProcedures(null,null,"%")));
    t("functions",()->drain(m.getFunctions(null,null,"%")));
    t("functioncols",()->drain(m.getFunctionColumns(null,null,"%","%")));
    t("proccols",()->drain(m.getProcedureColumns(null,null,"%","%")));
    t("privs",()->drain(m.getTablePrivileges(null,"public","people")));
    t("colprivs",()->drain(m.getColumnPrivileges(null,"public","people","%")));
    t("best",()->drain(m.getBestRowIdentifier(null,"public","people",DatabaseMetaData.bestRowSession,false)));
    t("version",()->drain(m.getVersionColumns(null,"public","people")));
    t("udts",()->drain(m.getUDTs(null,null,"%",null)));
    t("clientinfo",()->drain(m.getClientInfoProperties()));
    t("keywords",()->m.getSQLKeywords());
    t("maxid",()->m.getMaxColumnNameLength());
    t("numeric functions",()->m.getNumericFunctions());
    t("cross",()->drain(m.getCrossReference(null,"public","people",null,"public","towns")));
    t("eps",()->c.createStatement().execute("SET deniable.epsilon = 20"));
    t("count",()->drain(c.createStatement().executeQuery("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex")));
    t("int",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age < ?"); s.setInt(1,50); drain(s.executeQuery()); });
    t("long",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age < ?"); s.setLong(1,50); drain(s.executeQuery()); });
    t("double",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age < ?"); s.setDouble(1,50.5); drain(s.executeQuery()); });
    t("decimal",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age < ?"); s.setBigDecimal(1,new java.math.BigDecimal("50.5")); drain(s.executeQuery()); });
    t("string",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE sex = ?"); s.setString(1,"F"); drain(s.executeQuery()); });
    t("date",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE seen < ?"); s.setDate(1,java.sql.Date.valueOf("2025-07-01")); drain(s.executeQuery()); });
    t("localdate",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE seen < ?"); s.setObject(1,java.time.LocalDate.of(2025,7,1)); drain(s.executeQuery()); });
    t("timestamp",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE seen < ?"); s.setTimestamp(1,Timestamp.valueOf("2025-07-01 00:00:00")); drain(s.executeQuery()); });
    t("null",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE sex = ?"); s.setNull(1,Types.VARCHAR); drain(s.executeQuery()); });
    t("bool",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE ?"); s.setBoolean(1,true); drain(s.executeQuery()); });
    t("array",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE sex = ANY(?)"); s.setArray(1,c.createArrayOf("text",new Object[]{"F","M"})); drain(s.executeQuery()); });
    t("intarray",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age = ANY(?)"); s.setArray(1,c.createArrayOf("int4",new Object[]{1,2})); drain(s.executeQuery()); });
    t("meta",()->{ PreparedStatement s=c.prepareStatement("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"); if(s.getMetaData().getColumnCount()!=2) throw new Exception("cols"); });
    t("parammeta",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age < ?"); s.getParameterMetaData().getParameterTypeName(1); });
    t("fetchsize",()->{ c.setAutoCommit(false); Statement s=c.createStatement(); s.setFetchSize(1); drain(s.executeQuery("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex")); c.commit(); c.setAutoCommit(true); });
    t("readonly",()->{ c.setReadOnly(true); c.setReadOnly(false); });
    t("isolation",()->{ c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE); c.getTransactionIsolation(); });
    t("valid",()->{ if(!c.isValid(5)) throw new Exception("invalid"); });
    t("schema",()->{ c.getSchema(); c.setSchema("public"); c.getCatalog(); });
    t("savepoint",()->{ c.setAutoCommit(false); Savepoint s=c.setSavepoint(); c.rollback(s); c.commit(); c.setAutoCommit(true); });
    t("repeat5",()->{ PreparedStatement s=c.prepareStatement("SELECT COUNT(*) FROM people WHERE age < ?"); for(int i=0;i<8;i++){ s.setInt(1,50); drain(s.executeQuery()); } });
    t("where0",()->{ ResultSet r=c.createStatement().executeQuery("SELECT * FROM (SELECT sex, age FROM people) SPARK_GEN_SUBQ_0 WHERE 1=0"); if(r.getMetaData().getColumnCount()!=2) throw new Exception("cols"); });
    System.out.println(ok+" of "+all);
  }
}
